"""Turn a JSON schema, a regular expression or a Lark grammar into the tokens that may come next.

``llguidance`` does the parsing (github.com/guidance-ai/llguidance: which schemas and which Lark it
knows): it walks its parser over the vocabulary's trie and says of every token whether the answer so far
and that token begin a sentence of the grammar.
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
"""The parameters that say what an answer must be."""

_SPACE = r" |\r?\n[ \t]{0,40}"
"""One space, or a new line with room for any indentation: unbounded, a model may put white space for ever."""


@dataclass(frozen=True, slots=True)
class AllowedTokens:
    """What may follow some tokens.

    Attributes:
        tokens: ``[vocab]`` whether each may.
        last: whether the grammar is fulfilled and nothing but an end may follow.
    """

    tokens: NDArray[np.bool_]
    last: bool


class GrammarState:
    """One request's place in its grammar.

    The parser follows the guesses, back and forth; what it says of each is kept until another token is
    taken, so that of a guess which draft and target both come by it is asked once.

    Args:
        begin: makes the parser, before the first token. Copies of one would share its tables: what breaks
            one of them breaks all, and what they learn of a grammar counts against the limits of each.
        ends: tokens that are no text and end the answer; they may come where the grammar is fulfilled.
        vocab: ids the model has.
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
        """Whether nothing may follow the tokens taken: an end has come, or all is said."""
        return self._over or self._look(()).last

    def stuck(self) -> str | None:
        """Say why no token at all may come next, or None where some may."""
        if self._look(()).tokens.any():
            return None
        reason = _reason(self._parser)
        # Where there is no token to go on with, the library has at most a code for it.
        return reason if " " in reason else "the model's tokens cannot write anything that fits"

    def take(self, token: int) -> None:
        """Learn that the answer has grown by a token."""
        if token in self._ends:
            self._over = True
            return
        if self._ahead[:1] != [token]:
            self._move((token,))
        del self._ahead[0]
        self._taken.append(token)
        self._known = {path[1:]: allowed for path, allowed in self._known.items() if path[:1] == (token,)}

    def apply(self, logits: Tensor, paths: Seq[Seq[int]]) -> None:
        """Mask logits ``[N, V]`` in place, each row as after its path.

        A row below a guess that is not allowed stays as it is: no answer gets there.
        """
        forbidden = np.zeros(tuple(logits.shape), np.bool_)
        width = min(self._vocab, logits.shape[1])
        # In order of their tokens, so that the parser seldom goes back.
        for path, row in sorted((tuple(path), row) for row, path in enumerate(paths)):
            allowed = self._after(path)
            if allowed is not None:
                forbidden[row] = True
                np.logical_not(allowed.tokens[:width], out=forbidden[row, :width])
        logits.masked_fill_(torch.from_numpy(forbidden).to(logits.device), -torch.inf)

    def _after(self, path: tuple[int, ...]) -> AllowedTokens | None:
        """Return what may follow a path, or None of one that cannot be taken."""
        if path in self._known or not path:
            return self._look(path)
        before, token = self._after(path[:-1]), path[-1]
        if before is None or token in self._ends or not before.tokens[token]:
            return None
        return self._look(path)

    def _look(self, path: tuple[int, ...]) -> AllowedTokens:
        """Ask the parser, once, what may follow a path that can be taken."""
        found = self._known.get(path)
        if found is None:
            self._move(path)
            found = self._known[path] = self._ask()
        return found

    def _ask(self) -> AllowedTokens:
        """Ask the parser what may follow where it stands; nothing where it can go no further."""
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
        """Bring the parser to after a path, from the guesses it has followed."""
        if self._parser.is_error():
            # It never leaves that state by itself, and the path that led there may not be this one.
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
    """Turns what requests ask for into grammars over one model's tokens.

    What the vocabulary needs is prepared with the first.

    Args:
        tokenizer: of the model.
        vocab: ids it has; those the tokenizer lacks are never allowed.
        eos: tokens that end its answers.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._eos = frozenset(eos)
        self._library = lru_cache(1)(self._prepare)

    def grammar(self, params: SamplingParams, ends: Iterable[int]) -> GrammarState | None:
        """Return what an answer must be, or None where it may be anything.

        Args:
            params: with a ``json_schema``, ``regex`` or ``grammar``, or without.
            ends: tokens that end this answer. One that is text has to fit the grammar as all text has.

        Raises:
            BadRequestError: naming the parameter and what the library has against it.
            ConfigurationError: the library is not installed.
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
        """Return a parser before its first token."""
        tokens, _ = self._library()
        from llguidance import LLMatcher  # noqa: PLC0415 - part of an extra, and there by now

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
        """Return the vocabulary as the library wants it, and those of its tokens that are no text."""
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
    """A model's tokens as llguidance takes them in: what each stands for, and how text is cut into them.

    The end token is one more than there are: where an answer may end is for :class:`GrammarState` to say,
    for a
    model may have several end tokens, or none.

    Attributes:
        tokens: ``[vocab + 1]`` the bytes of each.
        special_token_ids: those that are no text; a grammar names them as ``<name>``.
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
        """Cut text into tokens: as the tokenizer does where that keeps every byte, else the longest first.

        It ends before what the vocabulary has no token for.
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
    """Return what the library says is wrong, without the state of its parser."""
    return re.split(r"\n<(?:backtrace|state)>", parser.get_error())[0].strip()


def _unusable(kind: str, reason: str) -> BadRequestError:
    """Return (not raise) the error for a grammar that is none, or none for this model."""
    error = BadRequestError(f"{kind} cannot be used: {reason}")
    error.param = kind
    return error


def _text(kind: str, given: Mapping[str, Any] | str) -> str:
    """Return a grammar as text; a schema has to be JSON."""
    if kind != "json_schema":
        return str(given)
    try:
        return json.dumps(json.loads(given) if isinstance(given, str) else dict(given), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_parameter(kind, given, f"a JSON schema as an object or as text ({error})") from error
