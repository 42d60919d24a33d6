"""Constrained decoding by a JSON schema, a regular expression or a Lark grammar.

``llguidance`` does the parsing (see github.com/guidance-ai/llguidance for the supported schemas and Lark
features). It walks its parser over the vocabulary's trie and returns a mask of the tokens that can follow
the output so far in some sentence of the grammar.

Grammars come from requests, so they are not trusted, and the library's parsers can overflow the stack.
Grammars that are too large are refused (:mod:`specclient_local.request.grammar_bounds`). All but small ones
are first compiled in another process (:mod:`specclient_local.model.grammar_prover`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specclient.errors import BadRequestError, ConfigurationError
from specclient.types.request_limits import RequestLimits
from specclient_local.model.grammar_prover import grammar_prover
from specclient_local.model.grammar_vocabulary import GrammarVocabulary
from specclient_local.model.grammar_worker import GrammarError, begin_parser
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.grammar_bounds import GrammarKind, check_grammar, check_object, check_size
from specclient_local.request.grammar_size import grammar_too_large, too_deep
from specclient_local.request.params import SamplingParams
from specclient_local.request.validation import bad_parameter

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

GRAMMAR_PARAMETERS: tuple[GrammarKind, ...] = ("json_schema", "regex", "grammar")
"""The request parameters that constrain the output; at most one is used."""

_KEPT = 1024
"""Number of checked grammars that are remembered, by their digest."""


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
        begin: creates a parser in its initial state. (Copies of one parser would share its tables. An error
            in one copy would break all, and its work would count against the limits of the others.)
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
        """Whether the output is complete: it has an end token, or the grammar allows no further text."""
        return self._over or self._look(()).last

    def stuck(self) -> str | None:
        """Return the reason why no token is allowed next, or None if some token is."""
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
    """Compiles requests' grammars for one model's vocabulary. Thread-safe.

    The vocabulary is prepared on first use.

    Args:
        tokenizer: the model's tokenizer.
        vocab: number of token ids of the model; ids unknown to the tokenizer are never allowed.
        eos: the model's end tokens.
        limits: limits on grammars.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab: int, eos: Iterable[int], limits: RequestLimits | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._eos = frozenset(eos)
        self._limits = limits or RequestLimits()
        self._library = lru_cache(1)(self._prepare)
        self._checked: dict[bytes, bool] = {}  # whether they compile for sure; in order of their last use

    def grammar(self, params: SamplingParams, ends: Iterable[int]) -> GrammarState | None:
        """Return the initial state of a request's grammar, or None if it has none.

        Args:
            params: the request's parameters; ``json_schema``, ``regex`` or ``grammar`` may be set.
            ends: tokens that end this output. An end token that is text must fit the grammar.

        Raises:
            BadRequestError: the grammar is too large or unusable; names the parameter and the reason.
            ConfigurationError: ``llguidance`` is not installed, or the process that tries grammars out cannot
                be started.
        """
        given = self._given(params)
        if given is None:
            return None
        kind, text = given
        if not self._is_proven(kind, text):
            self._prove(kind, text)
        begin = partial(self._parser, kind, text)
        grammar = GrammarState(begin, self._library().vocabulary.ends.intersection(ends), self._vocab)
        wrong = grammar.stuck()
        if wrong is not None:
            raise _unusable(kind, wrong)
        return grammar

    def is_proven(self, params: SamplingParams) -> bool:
        """Check a request's grammar, and return whether it can be compiled without trying it out.

        Raises:
            BadRequestError: the grammar is too large.
        """
        given = self._given(params)
        return given is None or self._is_proven(*given)

    def prove(self, params: SamplingParams) -> None:
        """Check a request's grammar, and try it out in another process unless it is small or known.

        Raises:
            BadRequestError, ConfigurationError: see :meth:`grammar`.
        """
        given = self._given(params)
        if given is not None and not self._is_proven(*given):
            self._prove(*given)

    def _is_proven(self, kind: GrammarKind, text: str) -> bool:
        key = _digest(kind, text)
        proven = self._checked.get(key)
        if proven is None:
            proven = check_grammar(kind, text, self._limits).small
        self._remember(key, proven=proven)
        return proven

    def _prove(self, kind: GrammarKind, text: str) -> None:
        prover = grammar_prover(self._limits.grammar_memory_bytes)
        vocabulary = self._library().vocabulary
        refusal = prover.refusal(self, vocabulary, kind, text, self._limits.grammar_s)
        if refusal is not None:
            raise grammar_too_large(kind, refusal)
        self._remember(_digest(kind, text), proven=True)

    def close(self) -> None:
        """Stop the process that tries grammars out, unless others use it; grammars still work."""
        grammar_prover(self._limits.grammar_memory_bytes).release(self)

    def _given(self, params: SamplingParams) -> tuple[GrammarKind, str] | None:
        """Return the kind and the text of a request's grammar."""
        for kind in GRAMMAR_PARAMETERS:
            given = getattr(params, kind)
            if given is not None:
                return kind, _text(kind, given, self._limits)
        return None

    def _remember(self, key: bytes, *, proven: bool) -> None:
        known = self._checked
        known.pop(key, None)
        known[key] = proven
        while len(known) > _KEPT:
            known.pop(next(iter(known.copy())), None)  # the copy, because another thread may add one

    def _parser(self, kind: str, text: str) -> LLMatcher:
        """Return a parser in its initial state."""
        try:
            parser = begin_parser(self._library().tokenizer, kind, text)
        except GrammarError as error:
            raise _unusable(kind, str(error)) from error
        if parser.is_error():
            raise _unusable(kind, _reason(parser))
        return parser

    def _prepare(self) -> _PreparedVocabulary:
        """Return the vocabulary, also in the library's form."""
        try:
            from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 - part of an extra
        except ImportError as error:
            raise ConfigurationError(
                "json_schema, regex and grammar need the package llguidance; "
                "run pip install 'specclient[local]'."
            ) from error
        vocabulary = GrammarVocabulary(self._tokenizer, self._vocab, self._eos)
        return _PreparedVocabulary(vocabulary, LLTokenizer(TokenizerWrapper(vocabulary)))


@dataclass(frozen=True, slots=True)
class _PreparedVocabulary:
    """A vocabulary, and the library's object of it."""

    vocabulary: GrammarVocabulary
    tokenizer: LLTokenizer


def _reason(parser: LLMatcher) -> str:
    """Return the library's error message without the parser state it appends."""
    return re.split(r"\n<(?:backtrace|state)>", parser.get_error())[0].strip()


def _unusable(kind: str, reason: str) -> BadRequestError:
    """Return (not raise) the error for a grammar that is invalid or unusable with this model."""
    error = BadRequestError(f"{kind} cannot be used: {reason}")
    error.param = kind
    return error


def _text(kind: GrammarKind, given: Mapping[str, Any] | str, limits: RequestLimits) -> str:
    """Return a grammar as text; a schema must be JSON."""
    if kind != "json_schema":
        return str(given)
    try:
        if isinstance(given, str):
            check_size(kind, given, limits)
            schema = json.loads(given)
        else:
            check_object(kind, given, limits)
            schema = dict(given)
        return json.dumps(schema, allow_nan=False)
    except RecursionError as error:  # only where the limit of nesting is raised
        raise too_deep(kind) from error
    except (TypeError, ValueError) as error:
        raise bad_parameter(kind, given, f"a JSON schema as an object or as text ({error})") from error


def _digest(kind: str, text: str) -> bytes:
    return blake2b(f"{kind}\0{text}".encode(errors="surrogatepass"), digest_size=16).digest()
