"""Conversion of OpenAI's chat parameters to the request body of the Converse API.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specclient.providers.anthropic.params import thinking_of
from specclient.providers.bedrock.content import RefuseConverseField, cache_point
from specclient.providers.bedrock.messages import converse_messages, has_tool_blocks
from specclient.providers.encoding import decoded
from specclient.providers.endpoint import Endpoint
from specclient.providers.unsupported import is_requested, refuse_unsupported
from specclient.providers.validation import checked_params, expect_kind
from specclient.types.request import Request

#: Parameters that :func:`converse_body` converts. Any other parameter with a non-default value is rejected.
_EXPRESSED = frozenset(
    {
        *("messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop"),
        *("stream_options", "tools", "tool_choice", "response_format", "reasoning_effort", "metadata"),
        "service_tier",
    }
)
_INSTEAD = {
    "function_call": "'function_call' is 'tool_choice' now",
    "functions": "'functions' are 'tools' now",
    "n": "send one request for each answer",
    "prediction": "the Converse API has no predicted outputs",
    "seed": "pass it in extra_body={'additionalModelRequestFields': …} if the model has one",
    "top_k": "pass it in extra_body={'additionalModelRequestFields': …}",
    "user": "pass it in metadata",
    "safety_identifier": "pass it in metadata",
    "parallel_tool_calls": "pass the model's own field in extra_body={'additionalModelRequestFields': …}",
}
#: Fields of ``extra_body`` that are added to those of the same name, instead of replacing them.
_MERGED = ("additionalModelRequestFields", "inferenceConfig", "outputConfig", "toolConfig")
_TIERS = ("default", "flex", "priority", "reserved")
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


def converse_body(request: Request, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """Return the body of ``POST /model/MODEL/converse`` for a chat request; that of a stream is the same.

    ``extra_body`` contains fields of the Converse API (``guardrailConfig``, ``performanceConfig``,
    ``additionalModelRequestFields``, …). They replace fields of the same name; the fields in
    :data:`_MERGED` are merged.

    Raises:
        UnsupportedParameterError: the Converse API has no equivalent, and the parameter may not be dropped.
        BadRequestError: messages or tools are malformed.
    """
    params = checked_params(decoded(request.params))
    extra = {name: value for name, value in request.options.body.items() if name != "stream_options"}

    def refused(name: str, why: str) -> None:
        refuse_unsupported(request, endpoint, [name], why=why)

    unknown = [name for name, value in params.items() if name not in _EXPRESSED and is_requested(name, value)]
    refuse_unsupported(
        request, endpoint, unknown, why="; ".join(_INSTEAD[name] for name in unknown if name in _INSTEAD)
    )
    body: dict[str, Any] = {}
    if "messages" in params:
        body |= converse_messages(params["messages"], refused)
    body |= _sampling(params, refused)
    body |= _tool_config(params, body.get("messages", []), refused)
    body |= _output(params, model, refused)
    if params.get("metadata"):
        body["requestMetadata"] = {name: str(value) for name, value in params["metadata"].items()}
    body |= _service_tier(params, refused)
    for name in _MERGED:
        if isinstance(extra.get(name), Mapping) and name in body:
            extra[name] = {**body[name], **extra[name]}
    return {**body, **extra}


def _sampling(params: Mapping[str, Any], refused: RefuseConverseField) -> dict[str, Any]:
    config: dict[str, Any] = {}
    longest = params.get("max_completion_tokens", params.get("max_tokens"))
    if longest is not None:
        config["maxTokens"] = longest
    temperature = params.get("temperature")
    if temperature is not None and 0 <= temperature <= 1:
        config["temperature"] = temperature
    elif temperature is not None:
        refused("temperature", f"it is {temperature}; Bedrock's range is 0 to 1")
    if "top_p" in params:
        config["topP"] = params["top_p"]
    if params.get("stop"):
        stop = params["stop"]
        config["stopSequences"] = [stop] if isinstance(stop, str) else stop
    return {"inferenceConfig": config} if config else {}


def _tool_config(
    params: Mapping[str, Any], turns: list[dict[str, Any]], refused: RefuseConverseField
) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for at, tool in enumerate(params.get("tools") or ()):
        tools += _tool(tool, f"tools[{at}]", refused)
    if not tools:
        return {}
    choice = params.get("tool_choice", "auto")
    config: dict[str, Any] = {"tools": tools}
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        config["toolChoice"] = {"tool": {"name": choice["function"].get("name")}}
    elif choice == "required":
        config["toolChoice"] = {"any": {}}
    elif choice == "none" and not has_tool_blocks(turns):
        return {}  # without tools none can be called
    elif choice != "auto":
        kind = choice.get("type") if isinstance(choice, dict) else choice
        refused(
            "tool_choice",
            f"{kind!r} has no equivalent in a conversation with tool calls; pass 'auto' or 'required'",
        )
    elif "tool_choice" in params:
        config["toolChoice"] = {"auto": {}}
    return {"toolConfig": config}


def _tool(tool: Any, where: str, refused: RefuseConverseField) -> list[dict[str, Any]]:
    """Convert a function to ``toolSpec``, and its cache breakpoint. Bedrock's own tools are not changed."""
    expect_kind(tool, where, dict)
    if "custom" in tool:
        refused(where, "it is a custom tool; the Converse API takes functions and its own tools")
        return []
    if "function" not in tool:
        return [tool]
    function = tool["function"]
    expect_kind(function, f"{where}.function", dict)
    spec = {"name": function.get("name")}
    if function.get("description"):
        spec["description"] = function["description"]
    spec["inputSchema"] = {"json": function.get("parameters") or {"type": "object", "properties": {}}}
    if function.get("strict") is not None:
        spec["strict"] = function["strict"]
    return [{"toolSpec": spec}, *(cache_point(tool, where, refused) or cache_point(function, where, refused))]


def _output(params: Mapping[str, Any], model: str, refused: RefuseConverseField) -> dict[str, Any]:
    """Return the fields for reasoning and for the response format."""
    config: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    effort = params.get("reasoning_effort")
    if effort is not None and effort not in ("none", *_EFFORTS):
        refused("reasoning_effort", f"it is {effort!r}; it must be one of none, {', '.join(_EFFORTS)}")
    elif effort is not None and "anthropic.claude" in model:
        longest = params.get("max_completion_tokens", params.get("max_tokens"))
        thinking, level = thinking_of(effort, model, longest, refused)
        fields = {"thinking": thinking} if thinking else {}
        config = {"effort": level} if level else {}
    elif effort is not None and "openai." in model:
        fields = {"reasoning_effort": effort}
    elif effort is not None and effort != "none":
        config["effort"] = "low" if effort == "minimal" else effort
    form = params.get("response_format")
    if form is not None and form.get("type") != "text":
        text_format = _text_format(form, refused)
        if text_format is not None:
            config["textFormat"] = text_format
    return {
        **({"outputConfig": config} if config else {}),
        **({"additionalModelRequestFields": fields} if fields else {}),
    }


def _text_format(form: Any, refused: RefuseConverseField) -> dict[str, Any] | None:
    value = form.get("json_schema") if form.get("type") == "json_schema" else None
    settings = value if isinstance(value, dict) else {}
    schema = settings.get("schema")
    if not isinstance(schema, dict):
        refused(
            "response_format", f"{form.get('type')!r} has no equivalent without a schema; use json_schema"
        )
        return None
    named = {name: settings[name] for name in ("name", "description") if settings.get(name)}
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return {"type": "json_schema", "structure": {"jsonSchema": {"schema": text, **named}}}


def _service_tier(params: Mapping[str, Any], refused: RefuseConverseField) -> dict[str, Any]:
    tier = params.get("service_tier", "auto")
    if tier == "auto":
        return {}
    if tier not in _TIERS:
        refused("service_tier", f"it is {tier!r}; it must be auto, {', '.join(_TIERS)}")
        return {}
    return {"serviceTier": {"type": tier}}
