"""Conversion of OpenAI's chat parameters, except the messages, to fields of Gemini's request body.

https://ai.google.dev/api/generate-content#method:-models.generatecontent
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specclient.errors import BadRequestError
from specclient.providers.gemini.messages import RefuseGeminiField
from specclient.providers.unsupported import is_requested

GeminiParams = dict[str, Any]

#: Parameters that only have another name: OpenAI's and Gemini's.
_SAME = {
    "temperature": "temperature",
    "top_p": "topP",
    "n": "candidateCount",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "top_logprobs": "logprobs",
}
#: Parameters that are converted one by one, or that Gemini does not need.
_READ = frozenset(
    {"messages", "stop", "logprobs", "modalities", "response_format", "reasoning_effort", "service_tier"}
    | {"tools", "tool_choice", "stream_options"}
)
#: Alternatives to parameters without an equivalent, for error messages.
_INSTEAD = {
    "audio": "set generationConfig.speechConfig by extra_body instead",
    "web_search_options": "pass extra_body={'tools': [{'googleSearch': {}}]} instead",
    "functions": "pass tools instead",
    "function_call": "pass tool_choice instead",
}
#: The fields of generationConfig. In ``extra_body`` they may be at the top level.
_GENERATION = frozenset(_SAME.values()) | {
    "topK", "stopSequences", "responseLogprobs", "responseMimeType", "responseSchema", "responseJsonSchema",
    "responseModalities", "thinkingConfig", "speechConfig", "imageConfig", "mediaResolution",
    "enableEnhancedCivicAnswers", "audioTranscriptionConfig",
}  # fmt: skip
_MOST_STOPS = 5
_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}

#: Model families with a thinking budget in tokens, and families without thinking. All others have thinking
#: levels. The budgets are those of Gemini's OpenAI-compatible endpoint
#: (https://ai.google.dev/gemini-api/docs/openai).
_BY_BUDGET = ("gemini-2.5", "gemini-robotics-er-1.5")
_UNTHINKING = ("gemini-1", "gemini-2.0")
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = {name: name.upper() for name in ("minimal", "low", "medium", "high", "xhigh")}


def settings_of(given: Mapping[str, Any], model: str, cannot: RefuseGeminiField) -> GeminiParams:
    """Return the fields of the request body, except ``contents`` and ``systemInstruction``.

    Args:
        given: OpenAI's parameters, as decoded JSON, without null values.
        model: the model's name; it determines how thinking is set.
        cannot: called with each parameter without an equivalent at Gemini.

    Raises:
        BadRequestError: a value is invalid. The error names the parameter.
        UnsupportedParameterError: raised by ``cannot``.
    """
    for name, value in given.items():
        if name not in _SAME and name not in _READ and is_requested(name, value):
            cannot(name, _INSTEAD.get(name, ""))
    generation: GeminiParams = {there: given[here] for here, there in _SAME.items() if here in given}
    generation |= _stops(given.get("stop"))
    if given.get("logprobs"):
        generation["responseLogprobs"] = True
    if "modalities" in given and given["modalities"] != ["text"]:
        generation["responseModalities"] = [str(kind).upper() for kind in given["modalities"]]
    generation |= _format(given.get("response_format"))
    if "reasoning_effort" in given:
        generation |= _thinking(given["reasoning_effort"], model, cannot)
    body: GeminiParams = {"generationConfig": generation} if generation else {}
    body |= _tools(given.get("tools"), given.get("tool_choice"), cannot)
    tier = given.get("service_tier", "auto")
    if tier in _TIERS:
        body["serviceTier"] = _TIERS[tier]
    elif tier != "auto":
        cannot("service_tier", f"it is {tier!r} and must be one of auto, {', '.join(_TIERS)}")
    return body


def with_extra_body(body: GeminiParams, extra: Mapping[str, Any]) -> GeminiParams:
    """Return a body with the fields of ``extra_body``: objects are merged, tools appended, all else replaced.

    Names may be in snake case (``safety_settings``). Fields of generationConfig may be at the top level.
    """
    added: GeminiParams = {}
    for name, value in extra.items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), name)  # noqa: PLW2901
        place = added.setdefault("generationConfig", {}) if name in _GENERATION else added
        place[name] = _merged(place.get(name, {}), value)  # a copy: the caller's objects are not modified
    more = added.get("tools")
    if isinstance(more, list):
        added["tools"] = [*body.get("tools", ()), *more]
    merged: GeminiParams = _merged(body, added)
    return merged


def _merged(known: Any, added: Any) -> Any:
    """Merge two values recursively. ``added`` replaces ``known`` unless both are objects."""
    if not (isinstance(known, Mapping) and isinstance(added, Mapping)):
        return added
    return {
        **known,
        **{name: _merged(known[name], value) if name in known else value for name, value in added.items()},
    }


def _stops(stop: Any) -> GeminiParams:
    if stop is None or stop == []:
        return {}
    stops = [stop] if isinstance(stop, str) else stop
    if len(stops) > _MOST_STOPS:
        raise BadRequestError(
            f"stop holds {len(stops)} sequences; Gemini takes a text or a list of up to {_MOST_STOPS}"
        )
    return {"stopSequences": stops}


def _format(wanted: Any) -> GeminiParams:
    if wanted is None or wanted.get("type") == "text":
        return {}
    kind = wanted.get("type")
    if kind == "json_object":
        return {"responseMimeType": "application/json"}
    held = wanted.get("json_schema")
    if kind != "json_schema" or not isinstance(held, Mapping):
        raise BadRequestError(
            f"response_format.type is {kind!r}; it must be 'text', 'json_object', or 'json_schema' with a "
            "json_schema"
        )
    schema = held.get("schema")
    schema_field = {} if schema is None else {"responseJsonSchema": schema}
    return {"responseMimeType": "application/json", **schema_field}


def _thinking(effort: Any, model: str, cannot: RefuseGeminiField) -> GeminiParams:
    """Return the thinking budget or level for an effort. Only ``includeThoughts`` requests summaries."""
    name = model.removeprefix("models/")
    if name.startswith(_UNTHINKING):
        if effort != "none":
            cannot("reasoning_effort", f"{name} does not think")
        return {}
    by_budget = name.startswith(_BY_BUDGET)
    known: Mapping[str, Any] = _BUDGETS if by_budget else _LEVELS
    if effort not in known:
        cannot("reasoning_effort", f"it is {effort!r}, and {name} takes {', '.join(known)}")
        return {}
    return {"thinkingConfig": {"thinkingBudget" if by_budget else "thinkingLevel": known[effort]}}


def _tools(tools: Any, choice: Any, cannot: RefuseGeminiField) -> GeminiParams:
    declared: list[GeminiParams] = []
    own: list[GeminiParams] = []
    strict = False
    for place, tool in enumerate(tools or ()):
        if not isinstance(tool, Mapping):
            raise BadRequestError(f"tools[{place}] is a {type(tool).__name__}; it must be an object")
        function = tool.get("function")
        if "type" not in tool and function is None:
            own.append(dict(tool))  # Gemini's own tool: {"googleSearch": {}}
        elif isinstance(function, Mapping) and function.get("name"):
            declared.append(_declaration(function))
            strict = strict or bool(function.get("strict"))
        else:
            cannot(f"tools[{place}]", f"it is of type {tool.get('type')!r}; Gemini calls functions")
    found = [{"functionDeclarations": declared}, *own] if declared else own
    calling = _calling(choice, cannot, strict=strict)
    return {
        **({"tools": found} if found else {}),
        **({"toolConfig": {"functionCallingConfig": calling}} if calling else {}),
    }


def _declaration(function: Mapping[str, Any]) -> GeminiParams:
    declared = {name: function[name] for name in ("name", "description") if function.get(name)}
    schema = function.get("parameters")
    return declared | ({"parametersJsonSchema": schema} if schema else {})


def _calling(choice: Any, cannot: RefuseGeminiField, *, strict: bool) -> GeminiParams:
    """Return the function calling mode. With VALIDATED the model may choose, and calls match their schema."""
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    if kind is None:
        return {"mode": "VALIDATED"} if strict else {}
    if kind == "auto":
        return {"mode": "VALIDATED" if strict else "AUTO"}
    if kind in ("none", "required"):
        return {"mode": "NONE" if kind == "none" else "ANY"}
    if kind == "function" and isinstance(choice.get("function"), Mapping):
        return {"mode": "ANY", "allowedFunctionNames": [choice["function"].get("name")]}
    if kind == "allowed_tools" and isinstance(allowed := choice.get("allowed_tools"), Mapping):
        names = [(tool.get("function") or {}).get("name") for tool in allowed.get("tools") or ()]
        mode = "ANY" if allowed.get("mode") == "required" else "VALIDATED"
        return {"mode": mode, "allowedFunctionNames": names}
    cannot("tool_choice", "it must be 'auto', 'none', 'required', a function, or allowed_tools")
    return {}
