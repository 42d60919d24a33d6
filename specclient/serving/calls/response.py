"""Sending of a call's result: JSON, or server-sent events for a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import pydantic

from specclient.call.pipeline import Pipeline
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.serving.calls.request import EXTENSION, IncomingCall
from specclient.serving.errors import (
    exception_summary,
    serving_error_of,
    shutting_down,
    upstream_limit_headers,
)
from specclient.serving.exchange import EVENTS, ClientDisconnectedError, HTTPExchange
from specclient.serving.responses_api.response import ResponseEventBuilder, response_of
from specclient.types.call import Call, MeteredModel
from specclient.types.inference_methods import CHAT, COMPLETION, RESPONSE
from specclient.types.request import Request

_log = logging.getLogger("specclient")

_NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_DONE = b"data: [DONE]\n\n"
_OBJECTS = {CHAT.name: "chat.completion.chunk", COMPLETION.name: "text_completion"}


async def send_whole(exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall) -> None:
    """Execute a call and send a JSON response.

    Raises:
        OpenAIError: the call failed; nothing has been sent.
    """
    result = await pipeline.execute(call.request)
    value = result.unwrap()
    if call.response is not None:
        extension = {EXTENSION: call_extension(value.meta)} if call.meta else {}
        await exchange.respond(json_of({**response_of(call.response, value), **extension}))
        return
    if call.meta and isinstance(value, MeteredModel):
        content = json_of(
            {**value.to_dict(mode="json", warnings=False), EXTENSION: call_extension(value.meta)}
        )
    else:
        content = _upstream_body(result, call.request) or json_bytes_of(value)
    headers = {} if result.reply is None else upstream_limit_headers(result.reply.headers)
    await exchange.respond(content, headers=headers)


async def send_stream(exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall) -> None:
    """Execute a call and send server-sent events. An error after the first event becomes the last event.

    Raises:
        OpenAIError: the call failed before the first event; nothing has been sent.
    """
    stream = await pipeline.stream(call.request)
    try:
        upstream = getattr(stream.http, "headers", None)
        await exchange.start(
            200, EVENTS, {**_NO_CACHE, **(upstream_limit_headers(upstream) if upstream else {})}
        )
        try:
            if call.response is None:
                last = await _send_events(exchange, stream, call)
            else:
                last = await _send_response_events(exchange, stream, call.response)
                if call.meta:
                    last += _meta_event(None, stream.meta, call.response)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not exchange.disconnected:  # the grace period of the shutdown is over
                await exchange.finish(_failure(shutting_down().error, call.response or call.request))
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent; report the error as an event
            problem = serving_error_of(error)
            why = exception_summary(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream was interrupted: %s", why)
            last = _failure(problem.error, call.response or call.request)
        await exchange.finish(last)
    finally:
        await stream.close()


async def _send_response_events(exchange: HTTPExchange, stream: AsyncStream[Any], response: Request) -> bytes:
    """Send a chat completion as events of the Responses API; return the last events."""
    events = ResponseEventBuilder(response)
    await exchange.write(b"".join([_named_event(event) for event in events.begin()]))
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await exchange.write(b"".join([_named_event(event) for chunk in batch for event in events.of(chunk)]))
    return b"".join([_named_event(event) for event in events.end()])


def _named_event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json_of(event))


async def _send_events(exchange: HTTPExchange, stream: AsyncStream[Any], call: IncomingCall) -> bytes:
    """Send the events of a stream; return the last events."""
    named = call.request.method is RESPONSE
    last = None
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await exchange.write(b"".join([_event(chunk, named=named) for chunk in batch]))
        last = batch[-1] if batch else last
    meta_event = _meta_event(last, stream.meta, call.request) if call.meta else b""
    return meta_event if named else meta_event + _DONE


def json_bytes_of(value: Any) -> bytes:
    """Return a result or chunk as JSON, with only the fields that are set."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False).encode()
    return json_of(value)


def call_extension(record: Call) -> dict[str, Any]:
    """Return cost, route and speculation of a call for the extension; costs are exact text."""
    return {
        "cost": _plain(record.cost),
        "route": _plain(record.route),
        "speculation": _plain(record.speculation),
    }


def _upstream_body(result: CallResult, request: Request) -> bytes | None:
    """Return the upstream's body if it uses OpenAI's format and can be sent unchanged; else None."""
    if result.reply is None or request.strategy is not None or result.dialect is not dialect("openai"):
        return None
    return result.reply.content


def _event(chunk: Any, *, named: bool) -> bytes:
    data = json_bytes_of(chunk)
    if not named:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (str(getattr(chunk, "type", "message")).encode(), data)


def _meta_event(last: Any, record: Call, request: Request) -> bytes:
    """Return the event with the extension of a streamed call: a separate chunk without choices."""
    if request.method is RESPONSE:
        return _named_event({"type": "specclient.meta", EXTENSION: call_extension(record)})
    head = {name: getattr(last, name, None) for name in ("id", "created", "model")}
    kind = _OBJECTS[request.method.name]
    return b"data: %b\n\n" % json_of(
        {**head, "object": kind, "choices": [], EXTENSION: call_extension(record)}
    )


def _failure(error: Mapping[str, Any], request: Request) -> bytes:
    if request.method is RESPONSE:
        body = {"type": "error", **{n: error[n] for n in ("code", "message", "param")}, "error": error}
        return _named_event(body)
    return b"data: %b\n\n" % json_of({"error": error})


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
