"""The program of the helper process that compiles grammars.

A grammar that overflows the stack, or takes too much time or memory, ends this process instead of the
engine's. The parent (:mod:`specclient_local.model.grammar_prover`) starts it. The engine itself compiles
small grammars, and others only once this process has compiled them.

The file imports nothing of the package; see :mod:`specclient_local.model.helper_worker`. The message
``{"tokens": [text, …], "special": [id, …]}`` makes a vocabulary the current one; ``{"kind": …, "text": …,
"seconds": …}`` compiles a grammar and computes its first mask. The answer is ``{}``, or ``{"failed":
reason}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

WHITE_SPACE = r" |\r?\n[ \t]{0,40}"
"""White space in JSON: one space, or a newline and indentation. It is bounded, so that a model cannot go on
writing white space."""

TOKENIZED_BYTES = 1024
"""Maximum bytes that are tokenized in one call; the library uses only the first token."""


class GrammarError(Exception):
    """The library cannot read a grammar."""


def begin_parser(tokenizer: LLTokenizer, kind: str, text: str) -> LLMatcher:
    """Return a parser in its initial state, or in its error state.

    The library's limits are set here, so that they do not depend on its version. They limit the construction
    of the lexer and each mask to about 20 ms, and the states of a parser to about 100 MB.

    Args:
        tokenizer: the vocabulary.
        kind: ``json_schema``, ``regex`` or ``grammar``.
        text: the grammar; a schema as JSON.

    Raises:
        GrammarError: the library cannot read the text.
    """
    from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415 - part of an extra

    limits = LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=500_000,
    )
    try:
        if kind == "json_schema":
            source = LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": WHITE_SPACE})
        else:
            read = LLMatcher.grammar_from_regex if kind == "regex" else LLMatcher.grammar_from_lark
            source = read(text)
        return LLMatcher(tokenizer, source, log_level=0, limits=limits)
    except BaseException as error:
        # A panic of the library (Rust) raises a subclass of BaseException that cannot be imported.
        if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
            raise GrammarError(str(error)) from error
        raise


class LongestMatchVocabulary:
    """A vocabulary in the form that the library reads. Its tokenizer takes the longest match.

    Args:
        tokens: ``[vocab + 1]`` the bytes of each token; the last stands for the end of the text.
        special: ids of tokens that are not text.
    """

    def __init__(self, tokens: list[bytes], special: list[int]) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.bos_token_id = None
        self.eos_token_id = len(tokens) - 1
        not_text = {*special, self.eos_token_id}
        self._ids = {piece: i for i, piece in enumerate(tokens) if piece and i not in not_text}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize the beginning of a text, up to the first bytes that no token covers."""
        text = text[:TOKENIZED_BYTES]
        ids: list[int] = []
        begin = 0
        while begin < len(text):
            ends = range(min(begin + self._longest, len(text)), begin, -1)
            end = next((end for end in ends if text[begin:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[text[begin:end]])
            begin = end
        return ids


def _tokenizer(message: dict[str, Any]) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 - after the path is set

    tokens = [piece.encode("latin-1") for piece in message["tokens"]]
    return LLTokenizer(TokenizerWrapper(LongestMatchVocabulary(tokens, message["special"])))


def _compile(tokenizer: LLTokenizer, message: dict[str, Any], answer: dict[str, str]) -> None:
    """Compile a grammar and compute its first mask.

    An error that the library reports is not a failure: the engine's process gets and reports the same error.
    """
    try:
        parser = begin_parser(tokenizer, message["kind"], message["text"])
        if not parser.is_error():
            parser.compute_bitmask()
    except GrammarError:
        pass
    except BaseException as error:  # noqa: BLE001 - the engine's process compiles only what compiled here
        answer["failed"] = type(error).__name__


_current: list[LLTokenizer] = []


def prepare(_settings: dict[str, Any]) -> None:
    """Import the library, before memory and time are limited."""
    import llguidance  # noqa: F401, PLC0415 - after the path is set


def answer(message: dict[str, Any]) -> dict[str, str]:
    """Answer a message of the parent."""
    found = dict[str, str]()
    if "tokens" in message:
        _current[:] = [_tokenizer(message)]
    else:
        _compile(_current[0], message, found)
    return found
