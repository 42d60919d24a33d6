"""Turn a call's answer into the bytes of a body: JSON for a whole one, server-sent events for a stream."""

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

_NOT_KEPT = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_DONE = b"data: [DONE]\n\n"
_OBJECTS = {CHAT.name: "chat.completion.chunk", COMPLETION.name: "text_completion"}


async def send_whole(talk: HTTPExchange, pipeline: Pipeline, asked: IncomingCall) -> None:
    """Serve a call and answer whole.

    Raises:
        OpenAIError: what refused it, before anything is sent.
    """
    exchange = await pipeline.execute(asked.request)
    value = exchange.unwrap()
    if asked.response is not None:
        more = {EXTENSION: call_extension(value.meta)} if asked.meta else {}
        await talk.say(json_of({**response_of(asked.response, value), **more}))
        return
    if asked.meta and isinstance(value, MeteredModel):
        content = json_of(
            {**value.to_dict(mode="json", warnings=False), EXTENSION: call_extension(value.meta)}
        )
    else:
        content = _as_sent(exchange, asked.request) or json_bytes_of(value)
    headers = {} if exchange.reply is None else upstream_limit_headers(exchange.reply.headers)
    await talk.say(content, headers=headers)


async def send_stream(talk: HTTPExchange, pipeline: Pipeline, asked: IncomingCall) -> None:
    """Serve a call and answer in events; what breaks it midway is its last event.

    Raises:
        OpenAIError: what refused it, before anything is sent.
    """
    stream = await pipeline.stream(asked.request)
    try:
        upstream = getattr(stream.http, "headers", None)
        await talk.begin(200, EVENTS, {**_NOT_KEPT, **(upstream_limit_headers(upstream) if upstream else {})})
        try:
            if asked.response is None:
                last = await _tell_events(talk, stream, asked)
            else:
                last = await _tell_response(talk, stream, asked.response)
                if asked.meta:
                    last += _told_last(None, stream.meta, asked.response)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not talk.gone:  # the server stops, and this took longer than it waits
                await talk.end(_failure(shutting_down().error, asked.response or asked.request))
            raise
        except Exception as error:  # noqa: BLE001 - the status is out: whatever it is, the client is told
            problem = serving_error_of(error)
            why = exception_summary(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream broke off: %s", why)
            last = _failure(problem.error, asked.response or asked.request)
        await talk.end(last)
    finally:
        await stream.close()


async def _tell_response(talk: HTTPExchange, stream: AsyncStream[Any], response: Request) -> bytes:
    """Tell a response that is played as a chat completion, and return its end."""
    events = ResponseEventBuilder(response)
    await talk.more(b"".join([_named(event) for event in events.begin()]))
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await talk.more(b"".join([_named(event) for chunk in batch for event in events.of(chunk)]))
    return b"".join([_named(event) for event in events.end()])


def _named(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json_of(event))


async def _tell_events(talk: HTTPExchange, stream: AsyncStream[Any], asked: IncomingCall) -> bytes:
    """Tell the events of a stream, and return its end."""
    named = asked.request.method is RESPONSE
    last = None
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await talk.more(b"".join([_event(chunk, named=named) for chunk in batch]))
        last = batch[-1] if batch else last
    told_last = _told_last(last, stream.meta, asked.request) if asked.meta else b""
    return told_last if named else told_last + _DONE


def json_bytes_of(value: Any) -> bytes:
    """Return an answer or a chunk as JSON: the fields that were set, as they are called on the wire."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False).encode()
    return json_of(value)


def call_extension(call: Call) -> dict[str, Any]:
    """Return what the extension says of a call; money as text, exact."""
    return {
        "cost": _plain(call.cost),
        "route": _plain(call.route),
        "speculation": _plain(call.speculation),
    }


def _as_sent(exchange: CallResult, request: Request) -> bytes | None:
    """Return the body that an endpoint sent, where it speaks OpenAI's language and nothing was made of it."""
    if exchange.reply is None or request.strategy is not None or exchange.dialect is not dialect("openai"):
        return None
    return exchange.reply.content


def _event(chunk: Any, *, named: bool) -> bytes:
    data = json_bytes_of(chunk)
    if not named:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (str(getattr(chunk, "type", "message")).encode(), data)


def _told_last(last: Any, call: Call, request: Request) -> bytes:
    """Return the event that says what a streamed call cost: a chunk of its own, without choices."""
    if request.method is RESPONSE:
        return _named({"type": "specclient.meta", EXTENSION: call_extension(call)})
    head = {name: getattr(last, name, None) for name in ("id", "created", "model")}
    kind = _OBJECTS[request.method.name]
    return b"data: %b\n\n" % json_of({**head, "object": kind, "choices": [], EXTENSION: call_extension(call)})


def _failure(error: Mapping[str, Any], request: Request) -> bytes:
    if request.method is RESPONSE:
        body = {"type": "error", **{n: error[n] for n in ("code", "message", "param")}, "error": error}
        return _named(body)
    return b"data: %b\n\n" % json_of({"error": error})


def _plain(value: Any) -> Any:
    """Return a record as JSON has it; decimals become texts."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
