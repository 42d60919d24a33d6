"""Parsing of a Messages API request, and its translation to a chat completion.

The pipeline works with the chat completion: it is what is routed, counted, budgeted and, at other providers
and engines, sent. Endpoints that speak Anthropic's API get the request itself. Fields:
https://platform.claude.com/docs/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from specclient.anthropic_http.content import chat_messages, native_chat_messages
from specclient.anthropic_http.thinking import cleaned_messages
from specclient.anthropic_http.tools import chat_tools, native_chat_tools
from specclient.openai_http.errors import bad_request, shown
from specclient.openai_http.model_names import check_name
from specclient.openai_http.request import (
    EXTENSION,
    IncomingCall,
    asks_meta,
    boolean_field,
    forwarded_headers,
    with_extension,
)
from specclient.openai_http.schema_format import schema_format
from specclient.providers.anthropic.params import BUDGETS
from specclient.types.inference_methods import CHAT
from specclient.types.permit import RoutePermit
from specclient.types.request import NativeRequest, PerCallOptions, Request

__all__ = ["message_call"]

#: Headers that every provider gets, and those that only Anthropic's API knows.
_FORWARDED = ("idempotency-key", "traceparent", "tracestate")
_ANTHROPIC = ("anthropic-version", "anthropic-beta")
#: Parameters of the query, which the clients add for beta features.
_QUERY = frozenset({"beta"})
#: Fields with the same meaning in a chat completion, by their names there.
_SAME = {"max_tokens": "max_tokens", "stop_sequences": "stop", "temperature": "temperature", "top_p": "top_p"}
#: Fields that are translated.
_READ = frozenset(
    {"messages", "output_config", "system", "thinking", "tool_choice", "tools", "top_k", *_SAME}
)
#: Fields without a meaning for other models: caching, accounting and the place of Anthropic's servers.
_IDLE = frozenset(
    {"cache_control", "context_management", "diagnostics", "inference_geo", "metadata", "service_tier",
     "speed", "user_profile_id", "workspace_id"}
)  # fmt: skip
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def message_call(
    given: dict[str, Any],
    headers: Mapping[str, str],
    query: str,
    *,
    native: bool,
    provider: str | None = None,
    engine: bool = False,
    generates: bool = True,
    permit: RoutePermit | None = None,
) -> IncomingCall:
    """Return the call of a Messages API request; it calls ``chat.completions.create``.

    Args:
        given: the body; ``model`` and ``stream`` are checked here.
        headers: request headers.
        query: query string.
        native: whether the model's provider speaks Anthropic's API. Then nothing is refused or left out.
        provider: the provider of the model, which gets its own thinking back; None if it is not chosen yet.
        engine: whether an engine in this process serves the model. Engines have no reasoning effort.
        generates: whether an answer is requested; False to count tokens.
        permit: the routes that the call may be sent to.

    Raises:
        ServingError: 400; the message names the field or block and what is allowed.
    """
    body = dict(given)
    ours = body.pop(EXTENSION, None)
    fields = {name: value for name, value in body.items() if value is not None}
    model = model_field(fields.pop("model", None))
    stream = boolean_field(fields.pop("stream", None), "stream")
    _check(fields, generates=generates)
    messages = cleaned_messages(body["messages"])
    if native:
        params, extra = _native_params({**fields, "messages": messages})
    else:
        params, extra = _params(fields, provider, engine=engine)
    if stream:
        params["stream_options"] = {"include_usage": True}
    written = NativeRequest(
        "anthropic",
        {**body, "messages": messages},
        params,
        headers=forwarded_headers(headers, _ANTHROPIC),
        query={name: value for name, value in parse_qsl(query) if name in _QUERY},
    )
    options = PerCallOptions(
        headers=forwarded_headers(headers, _FORWARDED), body=extra, permit=permit, native=written
    )
    request = Request(CHAT, model, params, stream=stream, options=options)
    return with_extension(IncomingCall(request, asks_meta(headers)), ours, headers)


def model_field(model: object) -> str:
    """Return the field ``model``.

    Raises:
        ServingError: 400, it is not the name of a model.
    """
    if isinstance(model, str) and model:
        check_name(model)
        return model
    raise bad_request(
        "model", f"model is {shown(model)}; it must be the name of a model; GET /v1/models lists the models"
    )


def _check(fields: Mapping[str, Any], *, generates: bool) -> None:
    messages, most = fields.get("messages"), fields.get("max_tokens")
    if not isinstance(messages, list) or not messages:
        raise bad_request(
            "messages", f"messages is {shown(messages)}; it must be a non-empty array of objects"
        )
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise bad_request(
                f"messages[{place}]", f"messages[{place}] is {shown(message)}; it must be an object"
            )
    if most is None and not generates:
        return
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise bad_request(
            "max_tokens", f"max_tokens is {shown(most)}; it must be the maximum number of tokens to generate"
        )


def _params(
    fields: Mapping[str, Any], provider: str | None, *, engine: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a chat completion, and its extra fields, for models of other providers."""
    for name in fields:
        if name not in _READ and name not in _IDLE:
            raise bad_request(
                name,
                f"{name} is not supported by models of other providers than Anthropic; allowed are "
                f"{', '.join(sorted(_READ | _IDLE))}",
            )
    params: dict[str, Any] = {_SAME[name]: fields[name] for name in fields if name in _SAME}
    params["messages"] = chat_messages(fields, provider)
    params |= chat_tools(fields)
    params |= _output(fields, engine=engine)
    return params, {"top_k": fields["top_k"]} if "top_k" in fields else {}


def _native_params(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a chat completion for Anthropic's models; all else is an extra field."""
    params: dict[str, Any] = {_SAME[name]: fields[name] for name in fields if name in _SAME}
    params["messages"] = native_chat_messages(fields)
    params |= native_chat_tools(fields)
    read = {"messages", "system", *_SAME, *params}
    return params, {name: value for name, value in fields.items() if name not in read}


def _output(fields: Mapping[str, Any], *, engine: bool) -> dict[str, Any]:
    """Return the parameters for thinking and for the response format."""
    config = _object(fields.get("output_config", {}), "output_config")
    found: dict[str, Any] = {}
    form = config.get("format")
    if form is not None:
        schema = _object(form, "output_config.format").get("schema")
        if form.get("type") != "json_schema" or not isinstance(schema, dict):
            raise bad_request(
                "output_config.format", "output_config.format must have the type 'json_schema' and a schema"
            )
        found["response_format"] = schema_format(schema)
    effort = _effort(fields, config)
    return found if effort is None or engine else {**found, "reasoning_effort": effort}


def _effort(fields: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return the reasoning effort that ``output_config.effort`` or a thinking budget asks for."""
    thinking, effort = _object(fields.get("thinking", {}), "thinking"), config.get("effort")
    if effort is not None:
        if effort not in _EFFORTS:
            raise bad_request(
                "output_config.effort",
                f"output_config.effort is {shown(effort)}; it must be one of {', '.join(_EFFORTS)}",
            )
        return str(effort)
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or isinstance(budget, bool) or not isinstance(budget, int):
        return None
    return next((name for name in ("low", "medium", "high") if budget <= BUDGETS[name]), "high")


def _object(value: object, name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise bad_request(name, f"{name} is {shown(value)}; it must be an object")
