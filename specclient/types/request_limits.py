"""Limits on what one request may ask of an engine in this process."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specclient.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits on what one request may ask of an engine; a request beyond one of them gets status 400.

    A grammar is a JSON schema, a regular expression, or a Lark or GBNF grammar; a tool's schema counts, too.

    Attributes:
        choices: prompts × ``n``, the number of answers to one request.
        prompt_logprobs: prompt tokens × choices × alternatives, log-probabilities of prompts in a response.
        embedding_inputs: the number of texts in one request for embeddings.
        embedding_tokens: the tokens of all texts in one request for embeddings; 32 times as many characters.
        grammar_bytes: the size of a grammar in UTF-8.
        grammar_rules: the number of rules and terminals, or of the places that a schema's ``$ref`` name.
        grammar_nesting: the number of brackets within each other; in a schema, of objects and arrays.
        grammar_chain: the number of rules, or of places that ``$ref`` name, each of which refers to the next.
            Those that refer to each other in a circle all count.
        grammar_alternatives: the length of a list of alternatives: of a rule, of ``anyOf``, ``oneOf``,
            ``allOf``, ``enum``, ``prefixItems`` or ``patternProperties``, and of ``guided_choice``.
        grammar_repetitions: a repetition count, such as ``{3,9}`` or ``maxItems``; those of repetitions
            within each other are multiplied.
        grammar_s: seconds of processor time to compile a grammar.
        grammar_memory_bytes: the memory of the process that compiles unproven grammars.

    Raises:
        ConfigurationError: a limit is not a number above 0.
    """

    choices: int = 1024
    prompt_logprobs: int = 250_000
    embedding_inputs: int = 2048
    embedding_tokens: int = 300_000
    grammar_bytes: int = 128 * 2**10
    grammar_rules: int = 1000
    grammar_nesting: int = 64
    grammar_chain: int = 256
    grammar_alternatives: int = 2000
    grammar_repetitions: int = 100_000
    grammar_s: float = 2.0
    grammar_memory_bytes: int = 2**30

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = int | float if field.name == "grammar_s" else int
            if isinstance(value, bool) or not isinstance(value, numbers) or not value > 0:
                kind = "a number" if field.name == "grammar_s" else "an integer"
                raise ConfigurationError(
                    f"the request limit {field.name} is {value!r}; it must be {kind} above 0"
                )
