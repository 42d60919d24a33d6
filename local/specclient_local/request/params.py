"""Sampling parameters of a request: how its answer is drafted, sampled and ended; checked on construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict, get_args

from specclient_local.request.validation import (
    ValueCheck,
    bad_parameter,
    check,
    integer,
    is_number,
    number,
    one_of,
    optional,
    optional_list_of,
    text,
)

EngineMethod = Literal[
    "plain", "draft", "ngram", "suffix", "layer_skip", "union", "medusa", "eagle", "peagle", "mtp"
]
"""Methods that an engine can be loaded with.

``plain`` does not draft. ``draft`` drafts with a draft model, ``ngram`` with the tokens that followed an
earlier occurrence of the last ones, ``suffix`` with those that most often did so in the request and in
earlier answers, ``layer_skip`` with some of the target's layers, ``union`` with all draft models and
``ngram`` at once, ``medusa``, ``eagle``, ``peagle`` (P-EAGLE) and ``mtp`` with heads of the target.
"""

Method = Literal[EngineMethod, "prediction"]
"""Methods of a request. ``prediction`` drafts the text that the request itself has as ``prediction``."""

Verification = Literal["block", "token"]
"""How a drafted chain is verified: ``block`` verifies its tokens together, ``token`` one after another.

See :mod:`specclient_local.decoding.verify`.
"""

ENGINE_METHODS: tuple[EngineMethod, ...] = get_args(EngineMethod)
METHODS: tuple[Method, ...] = get_args(Method)
VERIFICATIONS: tuple[Verification, ...] = get_args(Verification)
DEFAULT_VERIFICATION: Verification = "block"

MAX_DRAFT_LENGTH = 10
MAX_PREDICTED_LENGTH = 15
MAX_TREE_WIDTH = 8
MAX_TREE_NODES = 63
MAX_STOPS = 16
MAX_BAD_WORDS = 500
MAX_BAD_WORD = 100
MAX_LOGPROBS = 20
MAX_BIAS = 100.0

_BIASES = f"an object from token ids to numbers from -{MAX_BIAS:.0f} to {MAX_BIAS:.0f}"
_SHARE = "a number above 0 and at most 1"
_PENALTY = "a number from -2 to 2"
_LOGPROBS = f"an integer from 0 to {MAX_LOGPROBS}, or None"
_GRAMMARS = ("json_schema", "regex", "grammar")


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """The allowed values of a parameter, and its option on the command line.

    Attributes:
        allowed: the allowed values in words, for the error.
        usable: returns whether a value is allowed. ``specclient local generate`` takes the type of the option
            from a range of numbers.
        option: help of the option of ``specclient local generate``; None for no option.
    """

    allowed: str
    usable: ValueCheck
    option: str | None = None


def parameter(default: Any, allowed: str, usable: ValueCheck, option: str | None = None) -> Any:
    """Return a field of :class:`SamplingParams` with a rule; see :class:`ParameterRule`."""
    return field(default=default, metadata={"rule": ParameterRule(allowed, usable, option)})


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
    verification: Verification | None
    logprobs: int | None
    prompt_logprobs: int | None
    prediction: str | Sequence[int] | None
    overflow: Literal["error", "slide"]
    adapter: str | None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an answer is drafted, sampled and ended; checked on construction.

    A new parameter needs a line here, its field with a rule, and its type in :class:`Parameters`. Requests
    then accept it by its name, ``specclient local generate`` has an option for it if the rule has a text, and
    rounds on the device leave requests that set it to the general path.

    By default only the temperature changes the distribution. A parameter is off at the number that has no
    effect: 1 for a share or a factor, 0 for a count, a threshold or a penalty; otherwise at None.

    Attributes:
        max_tokens: maximum number of new tokens, at least 1, or 0 (with ``prompt_logprobs``) to score the
            prompt alone. None allows as many as the context holds.
        min_tokens: number of new tokens before which no end token or stop string ends the answer.
        temperature: divisor of the logits, a finite number above 0; 0 is greedy.
        top_p: keep the smallest set of tokens that has this share of the probability, in (0, 1].
        top_k: keep this many of the most likely tokens; 0 keeps all.
        min_p: keep tokens that are at least this share as likely as the most likely one, in [0, 1]
            (arXiv 2407.01082).
        typical_p: keep the tokens whose information is nearest to the entropy, up to this share of the
            probability, in (0, 1] (arXiv 2202.00666).
        repetition_penalty: divides positive and multiplies negative logits of tokens that occur in prompt or
            answer, above 0 (arXiv 1909.05858); 1 has no effect.
        presence_penalty, frequency_penalty: subtracted from the logits of tokens that occur in the answer,
            once and once per occurrence, from -2 to 2 (OpenAI, "Create chat completion").
        logit_bias: added to the logits of token ids, from -100 to 100.
        seed: seed of the request's own random stream; None chooses one.
        stop: strings that end the answer and are not part of it; one string or up to 16.
        stop_token_ids: token ids that end the answer, in addition to the model's own.
        bad_words: strings whose token sequences may not occur in the answer, up to 500 of up to 100
            characters: each new token is compared with all of them.
        json_schema, regex, grammar: a JSON schema (an object or its text), a regular expression, or a Lark
            grammar that the whole answer must match; at most one of them.
        draft_length: drafted tokens per round, 0 to 10. None chooses it by measured acceptance and cost;
            ``step`` adds or removes one according to the last round.
        draft_tree: widths of a draft tree, one per depth: the number of nodes below each node. ``grow``
            expands the most likely nodes. None drafts a chain, or the shape that measured acceptance and cost
            favour.
        method: the drafting method. None is ``prediction`` if a prediction is given, else the engine's
            method.
        verification: how a drafted chain is verified at a temperature. ``block`` verifies its tokens together
            (arXiv 2403.10444), ``token`` one after another. The answer's distribution is the target's by
            both; more tokens are accepted by ``block``. None is the model's configured rule, or ``block``.
            Trees and unions are always verified by ``token``.
        logprobs: number of alternatives reported with each new token's log-probability, 0 to 20; None reports
            no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt.
        prediction: expected answer, or a text that shares much with it, as text or token ids. It speeds up
            the answer where it is right, and never changes it.
        overflow: the treatment of a prompt and answer that exceed the context. ``error`` rejects the request.
            ``slide`` drops the oldest half of the context whenever it is full, and continues as if the rest
            were the prompt; logits processor and random stream continue. ``slide`` needs ``max_tokens``.
        adapter: name of a LoRA adapter that the engine was loaded with; None uses the model as it is.

    Raises:
        BadRequestError: a value is invalid; names the parameter, the value and what is allowed.
    """

    max_tokens: int | None = 128
    min_tokens: int = parameter(
        0, "an integer of at least 0", integer(0), "Minimum tokens to generate before the answer may end."
    )
    temperature: float = parameter(0.0, "a finite number of at least 0", number(0.0))
    top_p: float = parameter(1.0, _SHARE, number(0.0, 1.0, open_low=True))
    top_k: int = parameter(
        0,
        "an integer of at least 0 (0 keeps all tokens)",
        integer(0),
        "Sample from this number of most likely tokens; 0 uses all tokens.",
    )
    min_p: float = parameter(
        0.0,
        "a number from 0 to 1",
        number(0.0, 1.0),
        "Sample from tokens whose probability is at least this share of the highest one.",
    )
    typical_p: float = parameter(
        1.0,
        _SHARE,
        number(0.0, 1.0, open_low=True),
        "Sample from the tokens nearest to the expected information that together have this probability.",
    )
    repetition_penalty: float = parameter(
        1.0,
        "a finite number above 0",
        number(0.0, open_low=True),
        "Make tokens that occur in prompt or answer less likely by this factor; 1 has no effect.",
    )
    presence_penalty: float = parameter(
        0.0, _PENALTY, number(-2.0, 2.0), "Subtract this from the logits of tokens that occur in the answer."
    )
    frequency_penalty: float = parameter(
        0.0,
        _PENALTY,
        number(-2.0, 2.0),
        "Subtract this from a token's logit for each time it occurs in the answer.",
    )
    logit_bias: Mapping[int, float] | None = field(default_factory=dict)
    seed: int | None = parameter(
        None, "an integer from -2**63 to 2**64 - 1", optional(integer(-(2**63), 2**64 - 1))
    )
    stop: Sequence[str] | str | None = ()
    stop_token_ids: Sequence[int] | None = ()
    bad_words: Sequence[str] | None = ()
    json_schema: Mapping[str, Any] | str | None = None
    regex: str | None = parameter(None, "a regular expression that is not empty", optional(text))
    grammar: str | None = parameter(None, "a Lark grammar that is not empty", optional(text))
    draft_length: int | Literal["step"] | None = None
    draft_tree: Sequence[int] | Literal["grow"] | None = None
    method: Method | None = None
    verification: Verification | None = parameter(
        None,
        "'block', 'token', or None",
        optional(one_of(*VERIFICATIONS)),
        "Verify drafted chains as a whole (block), which accepts more tokens at a temperature, or token by "
        "token. Default: as configured, or block.",
    )
    logprobs: int | None = parameter(None, _LOGPROBS, optional(integer(0, MAX_LOGPROBS)))
    prompt_logprobs: int | None = parameter(None, _LOGPROBS, optional(integer(0, MAX_LOGPROBS)))
    prediction: str | Sequence[int] | None = None
    overflow: Literal["error", "slide"] = parameter(
        "error", "'error' or 'slide'", lambda value: value in ("error", "slide")
    )
    adapter: str | None = parameter(
        None, "the name of an adapter, or None", optional(text), "Answer by this LoRA adapter of the model."
    )

    def __post_init__(self) -> None:
        for name, rule in PARAMETER_RULES.items():
            check(name, getattr(self, name), rule.allowed, rule.usable)
        check("logit_bias", self.logit_bias, _BIASES, _biases)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias or {}))
        self._check_ending()
        self._check_drafting()

    @property
    def verification_rule(self) -> Verification:
        """How drafted chains are verified."""
        return self.verification or DEFAULT_VERIFICATION

    @property
    def constrained(self) -> bool:
        """Whether the answer must match a schema, a regular expression or a grammar."""
        return any(getattr(self, name) is not None for name in _GRAMMARS)

    def _check_ending(self) -> None:
        least = 1 if self.prompt_logprobs is None else 0
        tokens = f"an integer of at least {least}, or None"
        check("max_tokens", self.max_tokens, tokens, optional(integer(least)))
        if self.overflow == "slide" and self.max_tokens is None:
            raise bad_parameter(
                "max_tokens", None, "a number if overflow is 'slide': nothing else ends the answer"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise bad_parameter("min_tokens", self.min_tokens, f"at most max_tokens, {self.max_tokens}")
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        check("stop", stop, f"up to {MAX_STOPS} non-empty strings", optional_list_of(text, MAX_STOPS))
        object.__setattr__(self, "stop", tuple(stop or ()))
        check("stop_token_ids", self.stop_token_ids, "a list of token ids", optional_list_of(integer(0)))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        words = f"up to {MAX_BAD_WORDS} strings of 1 to {MAX_BAD_WORD} characters"
        check("bad_words", self.bad_words, words, optional_list_of(_bad_word, MAX_BAD_WORDS))
        object.__setattr__(self, "bad_words", tuple(self.bad_words or ()))
        given = [name for name in _GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            raise bad_parameter(
                given[1], getattr(self, given[1]), f"None if {given[0]} is set: at most one of them"
            )
        schema = optional(lambda value: text(value) or isinstance(value, Mapping))
        check("json_schema", self.json_schema, "a JSON schema as an object or as text", schema)

    def _check_drafting(self) -> None:
        length = f"an integer from 0 to {MAX_DRAFT_LENGTH}, 'step', or None"
        usable = optional(integer(0, MAX_DRAFT_LENGTH))
        check("draft_length", self.draft_length, length, lambda v: v == "step" or usable(v))
        tree = (
            f"up to {MAX_DRAFT_LENGTH} widths from 1 to {MAX_TREE_WIDTH} that make {MAX_TREE_NODES} tokens "
            "at most, 'grow', or None"
        )
        check("draft_tree", self.draft_tree, tree, _tree)
        if self.draft_tree is not None and self.draft_tree != "grow":
            object.__setattr__(self, "draft_tree", tuple(self.draft_tree))
        methods = f"one of {', '.join(METHODS)}, or None"
        check("method", self.method, methods, lambda v: v in (None, *METHODS))
        if self.method == "prediction" and self.prediction is None:
            others = ", ".join(ENGINE_METHODS)
            raise bad_parameter("method", "prediction", f"one of {others}, or to set prediction as well")


PARAMETER_RULES: Mapping[str, ParameterRule] = {
    each.name: each.metadata["rule"] for each in fields(SamplingParams) if "rule" in each.metadata
}
"""The rules of the parameters whose check does not depend on another parameter."""


def _bad_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_BAD_WORD


def _biases(value: object) -> bool:
    return value is None or (
        isinstance(value, Mapping)
        and all(integer(0)(token) for token in value)
        and all(is_number(bias) and abs(bias) <= MAX_BIAS for bias in value.values())
    )


def _tree(value: object) -> bool:
    if value is None or value == "grow":
        return True
    if not value or not optional_list_of(integer(1, MAX_TREE_WIDTH), MAX_DRAFT_LENGTH)(value):
        return False
    assert isinstance(value, list | tuple)
    level, nodes = 1, 0
    for width in value:
        level *= width
        nodes += level
    return nodes <= MAX_TREE_NODES


#: Maximum length of a prompt with ``overflow="slide"``, in contexts; only its end has an effect.
_SLIDING = 8


def prompt_limit(context: int, params: SamplingParams) -> int:
    """Return the number of tokens that a prompt may have, without those of the answer.

    Args:
        context: maximum number of tokens of prompt and answer together.
        params: the request's parameters.
    """
    slides = params.overflow == "slide" and params.prompt_logprobs is None
    return context * _SLIDING if slides else context
