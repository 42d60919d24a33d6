"""Constrained decoding by a JSON schema, a regular expression or a Lark grammar.

``llguidance`` does the parsing (see github.com/guidance-ai/llguidance for the supported schemas and Lark
features). It walks its parser over the vocabulary's trie and returns a mask of the tokens that can follow
the output so far in some sentence of the grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specclient.errors import BadRequestError, ConfigurationError
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from specclient_local.request.validation import bad_parameter

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

GRAMMAR_PARAMETERS = ("json_schema", "regex", "grammar")
"""The request parameters that constrain the output; at most one is used."""

_SPACE = r" |\r?\n[ \t]{0,40}"
"""White space in JSON: one space, or a newline and indentation. Without a bound, a model may never stop."""


@dataclass(frozen=True, slots=True)
class AllowedTokens:
    """The tokens allowed after a prefix.

    Attributes:
        tokens: ``[vocab]`` bool mask of the allowed tokens.
        last: whether the grammar is complete and only an end token may follow.
    """

    tokens: NDArray[np.bool_]
    last: bool


class GrammarState:
    """The parser state of one request's grammar.

    The parser advances along drafted tokens and rolls back. Its masks are cached by path until the next
    token is appended, so a path that both draft and target visit is computed once.

    Args:
        begin: creates a parser in its initial state. Copies of one parser would share its tables: an error
            in one breaks all, and each copy's work counts against the limits of the others.
        ends: non-text tokens that end the output; allowed where the grammar is complete.
        vocab: number of token ids of the model.
    """

    def __init__(self, begin: Callable[[], LLMatcher], ends: Iterable[int], vocab: int) -> None:
        self._begin = begin
        self._parser = begin()
        self._ends = sorted(ends)
        self._vocab = vocab
        self._taken: list[int] = []
        self._ahead: list[int] = []
        self._known: dict[tuple[int, ...], AllowedTokens] = {}
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether nothing may follow the output: it has an end token, or the grammar allows no more text."""
        return self._over or self._look(()).last

    def stuck(self) -> str | None:
        """Return why no token is allowed next, or None if some token is."""
        if self._look(()).tokens.any():
            return None
        reason = _reason(self._parser)
        # If no token can continue, the library reports at most a short code instead of a sentence.
        return reason if " " in reason else "the model's tokens cannot write anything that fits"

    def take(self, token: int) -> None:
        """Record that a token was appended to the output."""
        if token in self._ends:
            self._over = True
            return
        if self._ahead[:1] != [token]:
            self._move((token,))
        del self._ahead[0]
        self._taken.append(token)
        self._known = {path[1:]: allowed for path, allowed in self._known.items() if path[:1] == (token,)}

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Set the logits ``[N, V]`` of forbidden tokens to -inf in place, for each row after its path.

        A row after a forbidden drafted token is left unchanged, because it can never be used.
        """
        forbidden = np.zeros(tuple(logits.shape), np.bool_)
        width = min(self._vocab, logits.shape[1])
        # Sorted by tokens, so that the parser rolls back rarely.
        for path, row in sorted((tuple(path), row) for row, path in enumerate(paths)):
            allowed = self._after(path)
            if allowed is not None:
                forbidden[row] = True
                np.logical_not(allowed.tokens[:width], out=forbidden[row, :width])
        logits.masked_fill_(torch.from_numpy(forbidden).to(logits.device), -torch.inf)

    def _after(self, path: tuple[int, ...]) -> AllowedTokens | None:
        """Return the tokens allowed after a path, or None if the path itself is not allowed."""
        if path in self._known or not path:
            return self._look(path)
        before, token = self._after(path[:-1]), path[-1]
        if before is None or token in self._ends or not before.tokens[token]:
            return None
        return self._look(path)

    def _look(self, path: tuple[int, ...]) -> AllowedTokens:
        """Return the tokens allowed after an allowed path, from the cache or the parser."""
        found = self._known.get(path)
        if found is None:
            self._move(path)
            found = self._known[path] = self._ask()
        return found

    def _ask(self) -> AllowedTokens:
        """Compute the tokens allowed in the parser's current state; none if the parser is in error."""
        packed = np.frombuffer(self._parser.compute_bitmask(), np.uint8)
        if self._parser.is_error():
            return AllowedTokens(np.zeros(self._vocab, np.bool_), last=False)
        tokens = np.unpackbits(packed, count=self._vocab, bitorder="little").view(np.bool_)
        fulfilled, named = self._parser.is_accepting(), tokens[self._ends]
        tokens[self._ends] = False
        last = fulfilled and not tokens.any()
        tokens[self._ends] = named | fulfilled  # a grammar may name an end token itself
        return AllowedTokens(tokens, last)

    def _move(self, path: tuple[int, ...]) -> None:
        """Move the parser to the end of a path, keeping the prefix shared with its current one."""
        if self._parser.is_error():
            # The error state is permanent, and another path may have caused it.
            self._parser, self._ahead = self._begin(), []
            self._parser.consume_tokens(self._taken)
        shared = 0
        for mine, theirs in zip(self._ahead, path, strict=False):
            if mine != theirs:
                break
            shared += 1
        if shared < len(self._ahead):
            self._parser.rollback(len(self._ahead) - shared)
        self._parser.consume_tokens([*path[shared:]])
        self._ahead = [*path]


class GrammarCompiler:
    """Compiles requests' grammars for one model's vocabulary.

    The vocabulary is prepared on first use.

    Args:
        tokenizer: the model's tokenizer.
        vocab: number of token ids of the model; ids unknown to the tokenizer are never allowed.
        eos: the model's end tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._eos = frozenset(eos)
        self._library = lru_cache(1)(self._prepare)

    def grammar(self, params: SamplingParams, ends: Iterable[int]) -> GrammarState | None:
        """Return the initial state of a request's grammar, or None if it has none.

        Args:
            params: the request's parameters; ``json_schema``, ``regex`` or ``grammar`` may be set.
            ends: tokens that end this output. An end token that is text must fit the grammar.

        Raises:
            BadRequestError: the grammar is unusable; names the parameter and the library's reason.
            ConfigurationError: ``llguidance`` is not installed.
        """
        for kind in GRAMMAR_PARAMETERS:
            given = getattr(params, kind)
            if given is not None:
                begin = partial(self._parser, kind, _text(kind, given))
                grammar = GrammarState(begin, self._library()[1].intersection(ends), self._vocab)
                wrong = grammar.stuck()
                if wrong is not None:
                    raise _unusable(kind, wrong)
                return grammar
        return None

    def _parser(self, kind: str, text: str) -> LLMatcher:
        """Return a parser in its initial state."""
        tokens, _ = self._library()
        from llguidance import LLMatcher  # noqa: PLC0415 - part of an extra, checked by _prepare

        if kind == "json_schema":
            source = LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": _SPACE})
        else:
            read = LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark
            source = read(text)
        parser = LLMatcher(tokens, source, log_level=0)
        if parser.is_error():
            raise _unusable(kind, _reason(parser))
        return parser

    def _prepare(self) -> tuple[LLTokenizer, frozenset[int]]:
        """Return the vocabulary in the library's form, and the ids of its non-text tokens."""
        try:
            from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 - part of an extra
        except ImportError as error:
            raise ConfigurationError(
                "json_schema, regex and grammar need the package llguidance; "
                "run pip install 'specclient[local]'."
            ) from error
        vocabulary = GrammarVocabulary(self._tokenizer, self._vocab, self._eos)
        return LLTokenizer(TokenizerWrapper(vocabulary)), frozenset(vocabulary.special_token_ids)


class GrammarVocabulary:
    """A model's vocabulary in the form llguidance reads: the bytes of each token, and a tokenizer function.

    ``eos_token_id`` is an additional id behind the vocabulary: a model may have several end tokens or none,
    so :class:`GrammarState` handles them itself.

    Attributes:
        tokens: ``[vocab + 1]`` the bytes of each token.
        special_token_ids: ids of non-text tokens; a grammar refers to them as ``<name>``.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos: Iterable[int]) -> None:
        pieces = [tokenizer.piece(token) for token in range(vocab)]
        special = {
            i for i, piece in enumerate(pieces) if tokenizer.special(piece.decode(errors="replace")) == i
        }
        self.tokens = [*pieces, b""]
        self.special_token_ids = sorted(special.union(eos))
        self.bos_token_id = None
        self.eos_token_id = vocab
        self._tokenizer = tokenizer
        self._unwritten = frozenset(self.special_token_ids)
        self._ids = {piece: i for i, piece in enumerate(pieces) if piece and i not in self._unwritten}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize text: by the tokenizer if that preserves every byte, else by the longest match.

        The result ends before the first bytes that no token covers.
        """
        try:
            ids = self._tokenizer.encode(text.decode(), begins=False)
        except UnicodeDecodeError:
            ids = []
        known = all(i < self.eos_token_id and i not in self._unwritten for i in ids)
        if known and b"".join(self.tokens[i] for i in ids) == text:
            return ids
        ids, begin = [], 0
        while begin < len(text):
            ends = range(min(begin + self._longest, len(text)), begin, -1)
            end = next((end for end in ends if text[begin:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[text[begin:end]])
            begin = end
        return ids


def _reason(parser: LLMatcher) -> str:
    """Return the library's error message without the parser state it appends."""
    return re.split(r"\n<(?:backtrace|state)>", parser.get_error())[0].strip()


def _unusable(kind: str, reason: str) -> BadRequestError:
    """Return (not raise) the error for a grammar that is invalid or unusable with this model."""
    error = BadRequestError(f"{kind} cannot be used: {reason}")
    error.param = kind
    return error


def _text(kind: str, given: Mapping[str, Any] | str) -> str:
    """Return a grammar as text; a schema must be JSON."""
    if kind != "json_schema":
        return str(given)
    try:
        return json.dumps(json.loads(given) if isinstance(given, str) else dict(given), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_parameter(kind, given, f"a JSON schema as an object or as text ({error})") from error
