"""Turn the parameters of a chat beside its messages into Gemini's generationConfig, tools and settings.

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

#: OpenAI's name of a setting, and Gemini's.
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
#: Parameters that are read one by one, or say nothing that Gemini would need to be told.
_READ = frozenset(
    {"messages", "stop", "logprobs", "modalities", "response_format", "reasoning_effort", "service_tier"}
    | {"tools", "tool_choice", "stream_options"}
)
#: What can be done about parameters that have no counterpart.
_INSTEAD = {
    "audio": "set generationConfig.speechConfig by extra_body instead",
    "web_search_options": "pass extra_body={'tools': [{'googleSearch': {}}]} instead",
    "functions": "pass tools instead",
    "function_call": "pass tool_choice instead",
}
#: The fields of generationConfig: ``extra_body`` may give them without naming it.
_GENERATION = frozenset(_SAME.values()) | {
    "topK", "stopSequences", "responseLogprobs", "responseMimeType", "responseSchema", "responseJsonSchema",
    "responseModalities", "thinkingConfig", "speechConfig", "imageConfig", "mediaResolution",
    "enableEnhancedCivicAnswers", "audioTranscriptionConfig",
}  # fmt: skip
_MOST_STOPS = 5
_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}

#: Families that think by a budget of tokens, and those that do not think; all others think by level.
#: The numbers are those of Gemini's OpenAI-compatible endpoint (https://ai.google.dev/gemini-api/docs/openai).
_BY_BUDGET = ("gemini-2.5", "gemini-robotics-er-1.5")
_UNTHINKING = ("gemini-1", "gemini-2.0")
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = {name: name.upper() for name in ("minimal", "low", "medium", "high", "xhigh")}


def settings_of(given: Mapping[str, Any], model: str, cannot: RefuseGeminiField) -> GeminiParams:
    """Return the fields of a body that parameters ask for, ``contents`` and ``systemInstruction`` apart.

    Args:
        given: OpenAI's, as decoded JSON, without those that are null.

    Raises:
        BadRequestError: for a value that is none, named.
        UnsupportedParameterError: by ``cannot``.
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
    """Return a body with what ``extra_body`` adds: objects are merged, tools added, anything else replaced.

    Names may be written as in Python (``safety_settings``); a setting of generationConfig may stand alone.
    """
    added: GeminiParams = {}
    for name, value in extra.items():
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), name)  # noqa: PLW2901
        place = added.setdefault("generationConfig", {}) if name in _GENERATION else added
        place[name] = _merged(place.get(name, {}), value)  # a copy: what is the caller's stays as it is
    more = added.get("tools")
    if isinstance(more, list):
        added["tools"] = [*body.get("tools", ()), *more]
    merged: GeminiParams = _merged(body, added)
    return merged


def _merged(known: Any, added: Any) -> Any:
    """Return what both say; where they differ, what has been added."""
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
    asked = {} if schema is None else {"responseJsonSchema": schema}
    return {"responseMimeType": "application/json", **asked}


def _thinking(effort: Any, model: str, cannot: RefuseGeminiField) -> GeminiParams:
    """Return how much a model is to think; thought summaries are asked for by ``includeThoughts`` alone."""
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
            own.append(dict(tool))  # Gemini's own: {"googleSearch": {}}
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
    """Return how functions are called; VALIDATED leaves it to the model, and holds calls to their schema."""
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
