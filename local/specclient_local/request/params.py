"""Turn a caller's settings into a checked, frozen value: how an answer is drafted, drawn and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from specclient_local.request.validation import (
    bad_parameter,
    check,
    integer,
    is_number,
    number,
    optional,
    several,
    text,
)

Method = Literal["plain", "draft", "ngram", "prediction", "layer_skip", "union", "medusa", "eagle"]
METHODS: tuple[Method, ...] = get_args(Method)
ENGINE_METHODS: tuple[Method, ...] = (
    "plain",
    "draft",
    "ngram",
    "layer_skip",
    "union",
    "medusa",
    "eagle",
)
"""What an engine can be loaded to do; a prediction comes with its request."""

MAX_DRAFT_LENGTH = 10
MAX_PREDICTED_LENGTH = 15
MAX_TREE_WIDTH = 8
MAX_TREE_NODES = 63
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_BIAS = 100.0

_BIASES = f"an object from token ids to numbers from -{MAX_BIAS:.0f} to {MAX_BIAS:.0f}"
_GRAMMARS = ("json_schema", "regex", "grammar")


class Parameters(TypedDict, total=False):
    """The fields of :class:`SamplingParams` as keyword arguments."""

    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    bad_words: Sequence[str] | None
    json_schema: Mapping[str, Any] | str | None
    regex: str | None
    grammar: str | None
    draft_length: int | Literal["step"] | None
    draft_tree: Sequence[int] | Literal["grow"] | None
    method: Method | None
    logprobs: int | None
    prompt_logprobs: int | None
    prediction: str | Sequence[int] | None
    overflow: Literal["error", "slide"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an answer is drafted, drawn and ended; checked on construction.

    Attributes:
        max_tokens: most new tokens, at least 1, or 0 to only read the prompt (with ``prompt_logprobs``);
            None means up to the context.
        min_tokens: no end token and no stop string ends the answer before it has so many.
        temperature: 0 is greedy; any finite value above it divides the logits.
        top_p: smallest set of tokens with this share of the probability, in (0, 1].
        top_k: that many most likely tokens; 0 keeps all.
        min_p: only tokens at least this share as likely as the likeliest, in [0, 1] (arXiv 2407.01082).
        typical_p: the tokens whose information is nearest to the expected one, to this share of the
            probability, in (0, 1] (arXiv 2202.00666).
        repetition_penalty: divides the positive and multiplies the negative logits of tokens that stand in
            prompt or answer, above 0 (arXiv 1909.05858); 1 does nothing.
        presence_penalty, frequency_penalty: subtracted from the logits of the answer's tokens, once and by
            how often they stand in it, from -2 to 2 (OpenAI, "Create chat completion").
        logit_bias: added to the logits of these token ids, from -100 to 100.
        seed: of the request's own random stream; None draws one.
        stop: strings that end the answer and are not part of it; one string or up to 16.
        stop_token_ids: tokens that end the answer, beside the model's own.
        bad_words: strings no token sequence of which may stand in the answer.
        json_schema, regex, grammar: what the whole answer must be: a JSON schema (an object, or its text), a
            regular expression, or a Lark grammar; one at most.
        draft_length: draft tokens a round, 0 to 10; None sets it by measured acceptance and cost; ``step``
            by one more or less as the last draft fared.
        draft_tree: guesses side by side: how many below each guess at each depth, or ``grow`` where the
            draft is least unsure; None drafts a chain, or what measured acceptance and cost say is best.
        method: None takes ``prediction`` where there is one, else the engine's.
        logprobs: how many alternatives each new token is told with, 0 to 20; None tells no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt.
        prediction: what the answer is expected to be, or to have much of: text, or token ids. It makes the
            answer faster where it is right, and never another one.
        overflow: what becomes of a prompt and answer longer than the context. ``error`` refuses the request.
            ``slide`` drops the oldest half of the context whenever it is full, and goes on as a request
            would whose prompt is what is left; rules and random stream go on, too. It needs ``max_tokens``.

    Raises:
        BadRequestError: naming the parameter, the value and what is allowed.
    """

    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default_factory=dict)
    seed: int | None = None
    stop: Sequence[str] | str | None = ()
    stop_token_ids: Sequence[int] | None = ()
    bad_words: Sequence[str] | None = ()
    json_schema: Mapping[str, Any] | str | None = None
    regex: str | None = None
    grammar: str | None = None
    draft_length: int | Literal["step"] | None = None
    draft_tree: Sequence[int] | Literal["grow"] | None = None
    method: Method | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prediction: str | Sequence[int] | None = None
    overflow: Literal["error", "slide"] = "error"

    def __post_init__(self) -> None:
        self._check_drawing()
        self._check_ending()
        self._check_drafting()
        told = f"an integer from 0 to {MAX_LOGPROBS}, or None"
        check("logprobs", self.logprobs, told, optional(integer(0, MAX_LOGPROBS)))
        check("prompt_logprobs", self.prompt_logprobs, told, optional(integer(0, MAX_LOGPROBS)))

    def _check_drawing(self) -> None:
        check("temperature", self.temperature, "a finite number of at least 0", number(0.0))
        for name in ("top_p", "typical_p"):
            share = number(0.0, 1.0, open_low=True)
            check(name, getattr(self, name), "a number above 0 and at most 1", share)
        check("top_k", self.top_k, "an integer of at least 0 (0 keeps all tokens)", integer(0))
        check("min_p", self.min_p, "a number from 0 to 1", number(0.0, 1.0))
        above = number(0.0, open_low=True)
        check("repetition_penalty", self.repetition_penalty, "a finite number above 0", above)
        for name in ("presence_penalty", "frequency_penalty"):
            check(name, getattr(self, name), "a number from -2 to 2", number(-2.0, 2.0))
        check("logit_bias", self.logit_bias, _BIASES, _biases)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias or {}))
        whole = "an integer from -2**63 to 2**64 - 1"
        check("seed", self.seed, whole, optional(integer(-(2**63), 2**64 - 1)))

    def _check_ending(self) -> None:
        least = 1 if self.prompt_logprobs is None else 0
        tokens = f"an integer of at least {least}, or None"
        check("max_tokens", self.max_tokens, tokens, optional(integer(least)))
        check("overflow", self.overflow, "'error' or 'slide'", lambda v: v in ("error", "slide"))
        if self.overflow == "slide" and self.max_tokens is None:
            raise bad_parameter(
                "max_tokens", None, "a number where overflow is 'slide': nothing else ends it"
            )
        check("min_tokens", self.min_tokens, "an integer of at least 0", integer(0))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise bad_parameter("min_tokens", self.min_tokens, f"at most max_tokens, {self.max_tokens}")
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        check("stop", stop, f"up to {MAX_STOPS} non-empty strings", several(text, MAX_STOPS))
        object.__setattr__(self, "stop", tuple(stop or ()))
        check("stop_token_ids", self.stop_token_ids, "a list of token ids", several(integer(0)))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        check("bad_words", self.bad_words, "a list of non-empty strings", several(text))
        object.__setattr__(self, "bad_words", tuple(self.bad_words or ()))
        given = [name for name in _GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            raise bad_parameter(given[1], getattr(self, given[1]), f"None beside {given[0]}: one at most")
        schema = optional(lambda value: text(value) or isinstance(value, Mapping))
        check("json_schema", self.json_schema, "a JSON schema as an object or as text", schema)
        check("regex", self.regex, "a regular expression that is not empty", optional(text))
        check("grammar", self.grammar, "a Lark grammar that is not empty", optional(text))

    def _check_drafting(self) -> None:
        length = f"an integer from 0 to {MAX_DRAFT_LENGTH}, 'step', or None"
        usable = optional(integer(0, MAX_DRAFT_LENGTH))
        check("draft_length", self.draft_length, length, lambda v: v == "step" or usable(v))
        tree = (
            f"up to {MAX_DRAFT_LENGTH} widths from 1 to {MAX_TREE_WIDTH} that make {MAX_TREE_NODES} guesses "
            "at most, 'grow', or None"
        )
        check("draft_tree", self.draft_tree, tree, _tree)
        if self.draft_tree is not None and self.draft_tree != "grow":
            object.__setattr__(self, "draft_tree", tuple(self.draft_tree))
        methods = f"one of {', '.join(METHODS)}, or None"
        check("method", self.method, methods, lambda v: v in (None, *METHODS))
        if self.method == "prediction" and self.prediction is None:
            others = ", ".join(m for m in METHODS if m != "prediction")
            raise bad_parameter("method", "prediction", f"one of {others}, or to give a prediction with it")


def _biases(value: object) -> bool:
    return value is None or (
        isinstance(value, Mapping)
        and all(integer(0)(token) for token in value)
        and all(is_number(bias) and abs(bias) <= MAX_BIAS for bias in value.values())
    )


def _tree(value: object) -> bool:
    if value is None or value == "grow":
        return True
    if not value or not several(integer(1, MAX_TREE_WIDTH), MAX_DRAFT_LENGTH)(value):
        return False
    assert isinstance(value, list | tuple)
    level, nodes = 1, 0
    for width in value:
        level *= width
        nodes += level
    return nodes <= MAX_TREE_NODES
