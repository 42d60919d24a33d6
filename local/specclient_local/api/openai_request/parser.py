"""Parse a request with OpenAI's and vLLM's parameters into the engine's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeGuard

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.types.request import Request
from specclient.types.request_limits import RequestLimits
from specclient_local.api.openai_request.answer_format import (
    ENGINE_FORMAT_PARAMETERS,
    FORMAT_PARAMETERS,
    parse_answer_format,
)
from specclient_local.api.openai_request.chat import parse_messages, parse_prediction, parse_tools
from specclient_local.api.tools.call_grammar import ToolSettings
from specclient_local.request.params import MAX_LOGPROBS, SamplingParams
from specclient_local.request.validation import bad_parameter, integer, shown

COMPLETION_MAX_TOKENS = 16
"""Default ``max_tokens`` of a text completion, as in OpenAI's API."""

MAX_CHOICES = 128
"""Upper limit of ``n``, the number of choices per prompt, as in OpenAI's API."""

#: Parameters that do not affect the text; accepted and ignored.
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

#: Unsupported parameters that would change the answer, with the values that have no effect and are accepted.
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

#: OpenAI's sampling parameters that the engine has under the same name.
_OPENAI_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop")
_DRAFTING = ("draft_length", "draft_tree", "method", "verification", "overflow")
_CONVERTED = ("max_tokens", "max_completion_tokens", "prediction", "logit_bias", "n", "best_of", "specclient")
_BY_MODEL = ("adapter",)
"""The parameters that only the model's name sets (``local/NAME:ADAPTER``): a key's models decide its use."""
_ANSWER = (*ENGINE_FORMAT_PARAMETERS, "logprobs", "prompt_logprobs")
_ENGINE_SAMPLING = tuple(
    each.name
    for each in fields(SamplingParams)
    if each.name not in {*_OPENAI_SAMPLING, *_DRAFTING, *_CONVERTED, *_ANSWER, *_BY_MODEL}
)
"""The engine's sampling parameters that OpenAI's API lacks, by vLLM's names where vLLM has them.

They are all fields that no other table has, so a new parameter needs no entry here.
"""
_PROMPTS = {"chat": "messages", "completion": "prompt"}
EXTENSION_PARAMETERS = (*_DRAFTING, "origins", *_ENGINE_SAMPLING, *ENGINE_FORMAT_PARAMETERS)
"""Fields of a request's ``specclient`` object; its sampling parameters override those of the request."""

#: Parameters that only one of the operations has.
_OPERATION_PARAMETERS = {
    "chat": frozenset({"logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"}),
    "completion": frozenset(
        {"add_special_tokens", "echo", "logprobs", "prompt_logprobs", "return_token_ids"}
    ),
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A parsed request.

    Attributes:
        messages: a chat's messages, text only; None for a text completion.
        prompts: a text completion's prompts, texts or token ids; empty for a chat.
        params: the validated parameters; the seed is that of each prompt's first choice.
        choices: number of choices per prompt (``n``).
        tools: tools that the answer may call; None for none.
        format_parameter: name of the request parameter that sets the answer's format; None for none.
        logprobs: alternatives to return per generated token; None for no log-probabilities.
        prompt_logprobs: alternatives to return per prompt token, in vLLM's format; None for none.
        special_tokens: whether a prompt as text gets the tokenizer's special tokens, such as a start token.
        echo: whether the text begins with the prompt.
        token_ids: whether the response contains token ids.
        origins: whether chunks mark the text that the draft proposed.
        stream_usage: whether the stream ends with a usage chunk.
    """

    messages: list[dict[str, Any]] | None
    prompts: tuple[str | list[int], ...]
    params: SamplingParams
    choices: int
    tools: ToolSettings | None
    format_parameter: str | None
    logprobs: int | None
    prompt_logprobs: int | None
    special_tokens: bool
    echo: bool
    token_ids: bool
    origins: bool
    stream_usage: bool


def parse_request(request: Request, model: str, limits: RequestLimits | None = None) -> EngineRequest:
    """Parse and validate a request.

    Args:
        request: the pipeline's request; parameters that are None are ignored.
        model: the model's name, for error messages.
        limits: limits on requests; None means the defaults.

    Raises:
        BadRequestError: a parameter has an invalid value, or more choices or a larger format are requested
            than the limits allow.
        UnsupportedParameterError: a parameter would change the answer in a way that the engine does not
            support.
    """
    given = {name: value for name, value in request.params.items() if value is not None}
    operation = request.operation
    required = _PROMPTS[operation]
    if required not in given:
        raise bad_parameter(required, None, f"a value: a {operation} needs {required}")
    limits = limits or RequestLimits()
    choices = _choices(given)
    _check_choices(given[required] if operation == "completion" else None, choices, limits)
    _reject_unsupported(given, operation, model, choices)
    extension = _extension(given)
    chat = operation == "chat"
    format_parameter, answer_format = parse_answer_format(given, dict(extension), model, limits)
    tools = parse_tools(given) if chat else None
    if tools is not None:
        tools, format_parameter, answer_format = (
            _with_format(tools, format_parameter, answer_format),
            "tools",
            {},
        )
    logprobs = _chat_logprobs(given) if chat else _count(given, "logprobs")
    default = None if chat else COMPLETION_MAX_TOKENS
    limit = given.get("max_completion_tokens", given.get("max_tokens", default))
    echo, prompt_logprobs = _flag(given, "echo"), _count(given, "prompt_logprobs")
    return EngineRequest(
        messages=parse_messages(given["messages"]) if chat else None,
        prompts=() if chat else _prompts(given["prompt"]),
        params=SamplingParams(
            max_tokens=limit,
            logprobs=logprobs,
            prediction=parse_prediction(given.get("prediction")),
            prompt_logprobs=_scored_prompt(prompt_logprobs, logprobs if echo else None, echo and limit == 0),
            logit_bias=_biases(given.get("logit_bias")),
            **_sampling(given, extension),
            **answer_format,
        ),
        choices=choices,
        tools=tools,
        format_parameter=format_parameter,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        special_tokens=_flag(given, "add_special_tokens", default=True),
        echo=echo,
        token_ids=_flag(given, "return_token_ids"),
        origins=bool(extension.get("origins", False)),
        stream_usage=bool((given.get("stream_options") or {}).get("include_usage", False)),
    )


def _extension(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the engine's own parameters, which the field ``specclient`` holds."""
    extension = given.get("specclient", {})
    allowed = ", ".join(EXTENSION_PARAMETERS)
    if not isinstance(extension, Mapping):
        raise bad_parameter("specclient", extension, f"an object with {allowed}")
    unknown = next((name for name in extension if name not in EXTENSION_PARAMETERS), None)
    if unknown is not None:
        error = BadRequestError(f"specclient has the unknown field {shown(unknown)}; allowed are {allowed}.")
        error.param = "specclient"
        raise error
    return extension


def _scored_prompt(requested: int | None, echoed: int | None, without_answer: bool) -> int | None:
    """Return the number of most likely tokens to report for each prompt token; None for no report.

    Args:
        requested: ``prompt_logprobs``.
        echoed: ``logprobs`` if the prompt is echoed, because echoed tokens get them like generated ones.
        without_answer: whether a prompt is echoed without new tokens. That still needs a prefill, which 0
            causes.
    """
    scored = max((count for count in (requested, echoed) if count is not None), default=None)
    return 0 if scored is None and without_answer else scored


def _with_format(tools: ToolSettings, name: str | None, answer_format: Mapping[str, Any]) -> ToolSettings:
    """Return tools with the format of an answer that calls none of them."""
    if name is None or "json_schema" in answer_format:
        return replace(tools, schema=answer_format.get("json_schema"))
    value = next(iter(answer_format.values()))
    raise bad_parameter(name, value, "None together with tools, where only JSON formats are supported")


def _sampling(given: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the engine has under the same name."""
    sampling = {"temperature": 1.0}
    sampling |= {n: given[n] for n in (*_OPENAI_SAMPLING, *_ENGINE_SAMPLING) if n in given}
    sampling |= {n: v for n in (*_ENGINE_SAMPLING, *_DRAFTING) if (v := extension.get(n)) is not None}
    if sampling.get("top_k") == -1:  # vLLM's value for all tokens
        sampling["top_k"] = 0
    return sampling


def _flag(given: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise bad_parameter(name, value, "true or false")
    return value


def _count(given: Mapping[str, Any], name: str) -> int | None:
    """Return the requested number of alternatives, or None."""
    value: int | None = given.get(name)
    if value is not None and not integer(0, MAX_LOGPROBS)(value):
        raise bad_parameter(name, value, f"an integer from 0 to {MAX_LOGPROBS}")
    return value


def _choices(given: Mapping[str, Any]) -> int:
    """Return the requested number of choices."""
    choices: int = given.get("n", 1)
    if not integer(1, MAX_CHOICES)(choices):
        raise bad_parameter("n", choices, f"an integer from 1 to {MAX_CHOICES}")
    return choices


def _check_choices(prompt: object, choices: int, limits: RequestLimits) -> None:
    """Check the number of answers to all prompts of a request together."""
    prompts = len(prompt) if _several(prompt) else 1
    if prompts * choices > limits.choices:
        each = f" and n is {choices}, which makes {prompts * choices} choices" if choices > 1 else ""
        error = BadRequestError(
            f"prompt has {prompts} prompts{each}; allowed are at most {limits.choices} choices in a request: "
            "send several requests, or raise choices in [server.requests]."
        )
        error.param, error.code = "prompt", "too_many_choices"
        raise error


def _several(prompt: object) -> TypeGuard[Sequence[object]]:
    """Return whether a prompt is a list of prompts, and not one of token ids."""
    return isinstance(prompt, list | tuple) and bool(prompt) and not isinstance(prompt[0], int)


def _chat_logprobs(given: Mapping[str, Any]) -> int | None:
    top = _count(given, "top_logprobs")
    if _flag(given, "logprobs"):
        return top or 0
    if top:
        raise bad_parameter("top_logprobs", top, "0 unless logprobs is true")
    return None


def _biases(given: object) -> dict[int, Any] | None:
    """Return ``logit_bias`` by token id; JSON keys are strings."""
    allowed = "an object from token ids to numbers from -100 to 100"
    if not isinstance(given, Mapping | None):
        raise bad_parameter("logit_bias", given, allowed)
    try:
        return {int(token): bias for token, bias in (given or {}).items()}
    except (TypeError, ValueError):
        raise bad_parameter("logit_bias", given, allowed) from None


def _reject_unsupported(given: Mapping[str, Any], operation: str, model: str, choices: int) -> None:
    """Raise for the first parameter that the engine does not support."""
    known = {
        *_OPENAI_SAMPLING,
        *_ENGINE_SAMPLING,
        *FORMAT_PARAMETERS,
        *NO_EFFECT,
        *_OPERATION_PARAMETERS[operation],
        _PROMPTS[operation],
        *_CONVERTED,
    }
    known -= {"best_of"}
    for name, value in given.items():
        neutral = (choices,) if name == "best_of" else NEUTRAL.get(name, ())
        if name in known or any(_equal_json(value, accepted) for accepted in neutral):
            continue
        allowed = ", ".join(repr(v) for v in neutral)
        hint = f"allowed is {allowed}, or to leave it out" if allowed else "leave it out"
        error = UnsupportedParameterError(f"{name}={shown(value)} is not supported by local/{model}; {hint}.")
        error.param = name
        raise error


def _equal_json(value: object, neutral: object) -> bool:
    """Return whether two values are equal in JSON, where 0 and false differ."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _prompts(prompt: object) -> tuple[str | list[int], ...]:
    """Return one or several prompts: texts, or lists of token ids."""
    if _several(prompt):
        return tuple(map(_prompt, prompt))
    return (_prompt(prompt),)


def _prompt(prompt: object) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | tuple) and all(map(integer(0), prompt)):
        return list(prompt)
    raise bad_parameter("prompt", prompt, "a string, a list of token ids, or a list of these")
