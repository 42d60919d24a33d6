"""Turn OpenAI parameters, and vLLM's names for what OpenAI lacks, into what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.types.request import Request
from specclient_local.api.openai_request.answer_format import (
    ENGINE_FORMAT_PARAMETERS,
    FORMAT_PARAMETERS,
    parse_answer_format,
)
from specclient_local.api.openai_request.chat import parse_messages, parse_prediction, parse_tools
from specclient_local.api.tools.call_grammar import ToolSettings
from specclient_local.request.params import MAX_LOGPROBS, SamplingParams
from specclient_local.request.validation import bad_parameter, integer

COMPLETION_MAX_TOKENS = 16
"""``max_tokens`` of a text completion that names none: the API's own default."""

MAX_CHOICES = 128
"""Most answers to one prompt (``n``), as the API allows."""

#: Parameters that leave the text as it is; accepted and unused.
NO_EFFECT = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)

#: Parameters that would change the answer, with the values that do not.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "ignore_eos": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "reasoning_effort": ("none",),
    "return_token_ids": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}

#: OpenAI's names of what the engine draws by, and vLLM's of what OpenAI has no name for.
_DIRECT = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop")
_BEYOND = (
    "top_k", "min_p", "typical_p", "repetition_penalty", "min_tokens", "stop_token_ids", "bad_words",
)  # fmt: skip
_OURS = ("draft_length", "draft_tree", "method", "overflow")
_OWN = ("max_tokens", "max_completion_tokens", "prediction", "logit_bias", "n", "best_of", "specclient")
_PROMPTS = {"chat": "messages", "completion": "prompt"}
EXTENSION_PARAMETERS = (*_OURS, "origins", *_BEYOND, *ENGINE_FORMAT_PARAMETERS)
"""What the object ``specclient`` of a request may hold; sampling there goes before what stands beside it."""

#: Parameters that only one operation has.
_OF_ONE = {
    "chat": frozenset({"logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"}),
    "completion": frozenset({"echo", "logprobs", "prompt_logprobs", "return_token_ids"}),
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request in the engine's terms.

    Attributes:
        messages: of a chat, text only; ``prompts``: of a text completion. The other one is None, or empty.
        params: checked; a seed is that of a prompt's first answer.
        choices: answers to each prompt.
        tools: what a chat's answer may call; None for nothing.
        formed_by: the parameter that asks for an answer of some form, as the caller knows it.
        logprobs: alternatives told with each token of the text; None for no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt, in vLLM's form.
        echo: whether the text begins with the prompt.
        token_ids: whether the answer tells them.
        origins: whether chunks tell which text the draft proposed.
        stream_usage: whether the stream ends with a usage chunk.
    """

    messages: list[dict[str, Any]] | None
    prompts: tuple[str | list[int], ...]
    params: SamplingParams
    choices: int
    tools: ToolSettings | None
    formed_by: str | None
    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool
    token_ids: bool
    origins: bool
    stream_usage: bool


def parse_request(request: Request, model: str) -> EngineRequest:
    """Read a request.

    Args:
        request: as the pipeline hands it in.
        model: for messages only.

    Raises:
        BadRequestError: a parameter with an unusable value.
        UnsupportedParameterError: one that would change the answer in a way the engine cannot.
    """
    given = {name: value for name, value in request.params.items() if value is not None}
    operation = request.operation
    required = _PROMPTS[operation]
    if required not in given:
        raise bad_parameter(required, None, f"a value: a {operation} needs {required}")
    choices = _choices(given)
    _refuse(given, operation, model, choices)
    extension = given.get("specclient", {})
    if not isinstance(extension, Mapping):
        raise bad_parameter("specclient", extension, f"an object with {', '.join(EXTENSION_PARAMETERS)}")
    unknown = next((name for name in extension if name not in EXTENSION_PARAMETERS), None)
    if unknown is not None:
        error = BadRequestError(f"specclient has {unknown!r}; allowed are {', '.join(EXTENSION_PARAMETERS)}.")
        error.param = "specclient"
        raise error
    chat = operation == "chat"
    formed_by, form = parse_answer_format(given, dict(extension), model)
    tools = parse_tools(given) if chat else None
    if tools is not None:
        tools, formed_by, form = _beside(tools, formed_by, form), "tools", {}
    logprobs = _chat_logprobs(given) if chat else _count(given, "logprobs")
    echo, scored = _flag(given, "echo"), _count(given, "prompt_logprobs")
    # What is echoed is told of like what is new; and an answer without new tokens is the prompt read.
    read_for = max((n for n in (scored, logprobs if echo else None) if n is not None), default=None)
    default = None if chat else COMPLETION_MAX_TOKENS
    limit = given.get("max_completion_tokens", given.get("max_tokens", default))
    return EngineRequest(
        messages=parse_messages(given["messages"]) if chat else None,
        prompts=() if chat else _prompts(given["prompt"]),
        params=SamplingParams(
            max_tokens=limit,
            logprobs=logprobs,
            prediction=parse_prediction(given.get("prediction")),
            prompt_logprobs=0 if echo and read_for is None and limit == 0 else read_for,
            logit_bias=_biases(given.get("logit_bias")),
            **_sampling(given, extension),
            **form,
        ),
        choices=choices,
        tools=tools,
        formed_by=formed_by,
        logprobs=logprobs,
        prompt_logprobs=scored,
        echo=echo,
        token_ids=_flag(given, "return_token_ids"),
        origins=bool(extension.get("origins", False)),
        stream_usage=bool((given.get("stream_options") or {}).get("include_usage", False)),
    )


def _beside(tools: ToolSettings, name: str | None, form: Mapping[str, Any]) -> ToolSettings:
    """Return tools for an answer that has a form where it calls none of them."""
    if name is None or "json_schema" in form:
        return replace(tools, schema=form.get("json_schema"))
    told = next(iter(form.values()))
    raise bad_parameter(name, told, "None beside tools, where what is no call can be JSON alone")


def _sampling(given: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that mean the same to the engine; -1 is vLLM's for all tokens."""
    sampling = {"temperature": 1.0} | {n: given[n] for n in (*_DIRECT, *_BEYOND) if n in given}
    sampling |= {n: v for n in (*_BEYOND, *_OURS) if (v := extension.get(n)) is not None}
    if sampling.get("top_k") == -1:
        sampling["top_k"] = 0
    return sampling


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise bad_parameter(name, value, "true or false")
    return value


def _count(given: Mapping[str, Any], name: str) -> int | None:
    """Return how many alternatives are asked for, or None."""
    value: int | None = given.get(name)
    if value is not None and not integer(0, MAX_LOGPROBS)(value):
        raise bad_parameter(name, value, f"an integer from 0 to {MAX_LOGPROBS}")
    return value


def _choices(given: Mapping[str, Any]) -> int:
    """Return how many answers are asked for."""
    choices: int = given.get("n", 1)
    if not integer(1, MAX_CHOICES)(choices):
        raise bad_parameter("n", choices, f"an integer from 1 to {MAX_CHOICES}")
    return choices


def _chat_logprobs(given: Mapping[str, Any]) -> int | None:
    top = _count(given, "top_logprobs")
    if _flag(given, "logprobs"):
        return top or 0
    if top:
        raise bad_parameter("top_logprobs", top, "0, or to ask for logprobs=true as well")
    return None


def _biases(given: object) -> dict[int, Any] | None:
    """Return ``logit_bias`` by token: JSON has it by text."""
    allowed = "an object from token ids to numbers from -100 to 100"
    if not isinstance(given, Mapping | None):
        raise bad_parameter("logit_bias", given, allowed)
    try:
        return {int(token): bias for token, bias in (given or {}).items()}
    except (TypeError, ValueError):
        raise bad_parameter("logit_bias", given, allowed) from None


def _refuse(given: Mapping[str, Any], operation: str, model: str, choices: int) -> None:
    known = {
        *_DIRECT,
        *_BEYOND,
        *FORMAT_PARAMETERS,
        *NO_EFFECT,
        *_OF_ONE[operation],
        _PROMPTS[operation],
        *_OWN,
    }
    known -= {"best_of"}
    for name, value in given.items():
        neutral = (choices,) if name == "best_of" else NEUTRAL.get(name, ())
        if name in known or any(_same(value, unused) for unused in neutral):
            continue
        allowed = ", ".join(repr(v) for v in neutral)
        hint = f"allowed is {allowed}, or to leave it out" if allowed else "leave it out"
        error = UnsupportedParameterError(f"{name}={value!r} is not supported by local/{model}; {hint}.")
        error.param = name
        raise error


def _same(value: object, neutral: object) -> bool:
    """Whether two values are one in JSON, where 0 and false differ."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _prompts(prompt: object) -> tuple[str | list[int], ...]:
    """Return the prompts, one or several: texts, or lists of token ids."""
    if isinstance(prompt, list | tuple) and prompt and not isinstance(prompt[0], int):
        return tuple(_prompt(one) for one in prompt)
    return (_prompt(prompt),)


def _prompt(prompt: object) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | tuple) and all(map(integer(0), prompt)):
        return list(prompt)
    raise bad_parameter("prompt", prompt, "a string, a list of token ids, or a list of these")
