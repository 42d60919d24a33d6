"""Results of calls as OpenAI's JSON bodies and server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import pydantic

from specclient.call.result import CallResult
from specclient.openai_http.request import EXTENSION
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT, COMPLETION, RESPONSE
from specclient.types.request import Request

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
#: The last event of a stream, except of the Responses API.
DONE = b"data: [DONE]\n\n"
_OBJECTS = {CHAT.name: "chat.completion.chunk", COMPLETION.name: "text_completion"}


def json_bytes_of(value: Any) -> bytes:
    """Return a result or chunk as JSON, with only the fields that are set."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False).encode()
    return json_of(value)


def upstream_body(result: CallResult, request: Request) -> bytes | None:
    """Return the upstream's body if it uses OpenAI's format and can be sent unchanged; else None."""
    if result.reply is None or request.strategy is not None or result.dialect is not dialect("openai"):
        return None
    return result.reply.content


def chunk_events(chunks: Iterable[Any], request: Request) -> bytes:
    """Return chunks, or events of the Responses API, as server-sent events."""
    named = request.method is RESPONSE
    return b"".join([_event(chunk, named=named) for chunk in chunks])


def named_events(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Return events with a ``type`` as server-sent events of that name."""
    return b"".join([_named_event(event) for event in events])


def error_event(error: Mapping[str, Any], request: Request) -> bytes:
    """Return the event of an error that ends a stream.

    Args:
        error: OpenAI's error object.
        request: the request that was streamed.
    """
    if request.method is RESPONSE:
        body = {"type": "error", **{n: error[n] for n in ("code", "message", "param")}, "error": error}
        return _named_event(body)
    return b"data: %b\n\n" % json_of({"error": error})


def meta_event(last: Any, record: Call, request: Request) -> bytes:
    """Return the event with the extension of a streamed call: a separate chunk without choices.

    Args:
        last: the last chunk, whose id the event repeats; None without one.
        record: the record of the call.
        request: the request that was streamed.
    """
    if request.method is RESPONSE:
        return _named_event({"type": "specclient.meta", EXTENSION: call_extension(record)})
    head = {name: getattr(last, name, None) for name in ("id", "created", "model")}
    kind = _OBJECTS[request.method.name]
    return b"data: %b\n\n" % json_of(
        {**head, "object": kind, "choices": [], EXTENSION: call_extension(record)}
    )


def call_extension(record: Call) -> dict[str, Any]:
    """Return cost, route and speculation of a call for the extension; costs are exact text."""
    return {
        "cost": _plain(record.cost),
        "route": _plain(record.route),
        "speculation": _plain(record.speculation),
    }


def _event(chunk: Any, *, named: bool) -> bytes:
    data = json_bytes_of(chunk)
    if not named:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (str(getattr(chunk, "type", "message")).encode(), data)


def _named_event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json_of(event))


def _plain(value: Any) -> Any:
    """Return a record as JSON values; decimals become text."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
