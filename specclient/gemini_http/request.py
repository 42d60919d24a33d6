"""Parsing of a request for content, and its translation to a chat completion.

The pipeline works with the chat completion; endpoints that speak Gemini's API get the request itself. Fields:
https://ai.google.dev/api/generate-content#method:-models.generatecontent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.gemini_http.content import chat_messages
from specclient.gemini_http.fields import array, camel_case, record, text_field, wrong
from specclient.gemini_http.schema import json_schema_of
from specclient.openai_http.errors import bad_request
from specclient.openai_http.request import (
    EXTENSION,
    IncomingCall,
    asks_meta,
    forwarded_headers,
    with_extension,
)
from specclient.openai_http.schema_format import schema_format
from specclient.types.inference_methods import CHAT
from specclient.types.permit import RoutePermit
from specclient.types.request import NativeRequest, PerCallOptions, Request

__all__ = ["content_call", "shows_thoughts"]

_FORWARDED = ("idempotency-key", "traceparent", "tracestate")
#: Fields of generationConfig by their names in chat completions, those that are read one by one, and those
#: that only set what other models do anyway.
_SAME = {
    "temperature": "temperature",
    "topP": "top_p",
    "candidateCount": "n",
    "maxOutputTokens": "max_tokens",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "stopSequences": "stop",
}
_READ = ("logprobs", "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseModalities",
         "responseSchema", "thinkingConfig", "topK")  # fmt: skip
_IDLE = ("mediaResolution", "enableEnhancedCivicAnswers")
_FIELDS = ("contents", "generationConfig", "systemInstruction", "toolConfig", "tools")
_IDLE_FIELDS = ("labels", "model", "safetySettings", "serviceTier", "store")
_MODES = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none", "MODE_UNSPECIFIED": "auto"}
#: The largest thinking budget of each reasoning effort.
_EFFORTS = ((0, "none"), (1024, "low"), (8192, "medium"))
_LEVELS = ("minimal", "low", "medium", "high")


def content_call(
    given: dict[str, Any],
    model: str,
    headers: Mapping[str, str],
    *,
    stream: bool,
    native: bool,
    engine: bool = False,
    permit: RoutePermit | None = None,
) -> IncomingCall:
    """Return the call of a request for content; it calls ``chat.completions.create``.

    Args:
        given: the body.
        model: the model in the path.
        headers: request headers.
        stream: whether the answer is streamed.
        native: whether the model's provider speaks Gemini's API. Then nothing is refused or left out.
        engine: whether an engine in this process serves the model. Engines have no reasoning effort.
        permit: the routes that the call may be sent to.

    Raises:
        ServingError: 400; the message names the field or part and what is allowed.
    """
    body = {name: value for name, value in given.items() if name != "model"}
    ours = body.pop(EXTENSION, None)
    fields = record(body, "the request's body")
    config = record(fields.get("generationConfig", {}), "generationConfig")
    if not native:
        _check(fields, config)
    params: dict[str, Any] = {here: config[there] for there, here in _SAME.items() if there in config}
    params["messages"] = chat_messages(fields, native=native)
    params |= _tools(fields, native=native) | _format(config)
    if config.get("responseLogprobs") is True:
        params |= {"logprobs": True, "top_logprobs": config.get("logprobs", 0)}
    if not engine:
        params |= _effort(config)
    extra: dict[str, Any] = {"top_k": config["topK"]} if "topK" in config else {}
    if native:
        extra |= {name: value for name, value in fields.items() if name not in _FIELDS}
        extra |= {name: value for name, value in config.items() if name not in (*_SAME, *_READ)}
    if stream:
        params["stream_options"] = {"include_usage": True}
    options = PerCallOptions(
        headers=forwarded_headers(headers, _FORWARDED),
        body=extra,
        permit=permit,
        native=NativeRequest("gemini", body, params),
    )
    request = Request(CHAT, model, params, stream=stream, options=options)
    return with_extension(IncomingCall(request, asks_meta(headers)), ours, headers)


def _check(fields: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse fields that have no equivalent for other models."""
    for holder, inner, allowed in (
        ("", fields, (*_FIELDS, *_IDLE_FIELDS)),
        ("generationConfig.", config, (*_SAME, *_READ, *_IDLE)),
    ):
        if unknown := next((name for name in inner if name not in allowed), None):
            raise bad_request(
                f"{holder}{unknown}",
                f"{holder}{unknown[:80]} is not supported by models of other providers than Gemini; allowed "
                f"are {', '.join(sorted(allowed))}",
            )
    modalities = array(config.get("responseModalities", ["TEXT"]), "generationConfig.responseModalities")
    kind = modalities[0] if len(modalities) == 1 else None
    if not isinstance(kind, str) or kind[:5].upper() != "TEXT":
        raise bad_request(
            "generationConfig.responseModalities", "generationConfig.responseModalities must be ['TEXT']"
        )


def _tools(fields: Mapping[str, Any], *, native: bool) -> dict[str, Any]:
    """Return the parameters ``tools`` and ``tool_choice``."""
    tools: list[dict[str, Any]] = []
    for place, each in enumerate(array(fields.get("tools", []), "tools")):
        where = f"tools[{place}]"
        tool = record(each, where)
        declared = array(tool.pop("functionDeclarations", []), f"{where}.functionDeclarations")
        tools += [
            _function(record(function, where), f"{where}.functionDeclarations[{at}]")
            for at, function in enumerate(declared)
        ]
        if tool and not native:
            raise bad_request(
                where,
                f"{where} has {next(iter(tool))[:80]!r}, which only Gemini's models have; other models take "
                "functionDeclarations",
            )
        if tool:
            tools.append(tool)
    if not tools:
        return {}
    config = record(fields.get("toolConfig", {}), "toolConfig")
    calling = record(config.get("functionCallingConfig", {}), "toolConfig.functionCallingConfig")
    return {"tools": tools, **_choice(calling)}


def _function(function: Mapping[str, Any], where: str) -> dict[str, Any]:
    schema = function.get("parametersJsonSchema", json_schema_of(function.get("parameters")))
    if schema is not None and not isinstance(schema, dict):
        raise wrong(f"{where}.parameters", schema, "a schema")
    described = {"description": function["description"]} if "description" in function else {}
    parameters = schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": text_field(function, "name", where), **described, "parameters": parameters},
    }


def _choice(calling: Mapping[str, Any]) -> dict[str, Any]:
    mode = calling.get("mode", "AUTO")
    if not isinstance(mode, str) or mode.upper() not in _MODES:
        raise wrong("toolConfig.functionCallingConfig.mode", mode, f"one of {', '.join(_MODES)}")
    chosen, names = _MODES[mode.upper()], calling.get("allowedFunctionNames") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise wrong("toolConfig.functionCallingConfig.allowedFunctionNames", names, "an array of names")
    if chosen == "none" or not names:
        return {"tool_choice": chosen}
    functions = [{"type": "function", "function": {"name": name}} for name in names]
    if chosen == "required" and len(functions) == 1:
        return {"tool_choice": functions[0]}
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": chosen, "tools": functions}}}


def _format(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter ``response_format``."""
    schema = config.get("responseJsonSchema", json_schema_of(config.get("responseSchema")))
    if schema is not None:
        if not isinstance(schema, dict):
            raise wrong("generationConfig.responseSchema", schema, "a schema")
        return {"response_format": schema_format(schema)}
    if config.get("responseMimeType") == "application/json":
        return {"response_format": {"type": "json_object"}}
    return {}


def _effort(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reasoning effort of a thinking level or budget; none for a budget that the model sets."""
    thinking = record(config.get("thinkingConfig", {}), "generationConfig.thinkingConfig")
    level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
    if isinstance(level, str) and level.lower() in _LEVELS:
        return {"reasoning_effort": level.lower()}
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        return {}
    return {"reasoning_effort": next((name for most, name in _EFFORTS if budget <= most), "high")}


def shows_thoughts(request: Request) -> bool:
    """Return whether a request for content asks for the model's thoughts."""
    written = request.options.native
    config = {} if written is None else _inner(written.body, "generationConfig")
    return _inner(config, "thinkingConfig").get("includeThoughts") is True


def _inner(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object within another, with names in camel case; empty if there is none."""
    found = next((value for key, value in holder.items() if camel_case(key) == name), None)
    return {camel_case(key): value for key, value in found.items()} if isinstance(found, dict) else {}
