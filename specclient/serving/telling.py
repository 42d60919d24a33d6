"""Turn a call's answer into the bytes of a body: JSON for a whole one, server-sent events for a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import pydantic

from specclient.pipeline import Pipeline
from specclient.providers import dialect
from specclient.providers.encoding import json_of
from specclient.reading import Exchange
from specclient.serving.asking import EXTENSION, Asked
from specclient.serving.problems import limits_told, problem_of, stopping, traced
from specclient.serving.responses_told import Events, response_of
from specclient.serving.talk import EVENTS, ClientGoneError, Talk
from specclient.stream import AsyncStream
from specclient.types.call import Call, Metered
from specclient.types.methods import CHAT, COMPLETION, RESPONSE
from specclient.types.request import Request

_log = logging.getLogger("specclient")

_NOT_KEPT = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_DONE = b"data: [DONE]\n\n"
_OBJECTS = {CHAT.name: "chat.completion.chunk", COMPLETION.name: "text_completion"}


async def tell_whole(talk: Talk, pipeline: Pipeline, asked: Asked) -> None:
    """Serve a call and answer whole.

    Raises:
        OpenAIError: what refused it, before anything is sent.
    """
    exchange = await pipeline.exchange(asked.request)
    value = exchange.answer()
    if asked.response is not None:
        more = {EXTENSION: told(value.meta)} if asked.meta else {}
        await talk.say(json_of({**response_of(asked.response, value), **more}))
        return
    if asked.meta and isinstance(value, Metered):
        content = json_of({**value.to_dict(mode="json", warnings=False), EXTENSION: told(value.meta)})
    else:
        content = _as_sent(exchange, asked.request) or dumped(value)
    headers = {} if exchange.wire is None else limits_told(exchange.wire.headers)
    await talk.say(content, headers=headers)


async def tell_stream(talk: Talk, pipeline: Pipeline, asked: Asked) -> None:
    """Serve a call and answer in events; what breaks it midway is its last event.

    Raises:
        OpenAIError: what refused it, before anything is sent.
    """
    stream = await pipeline.stream(asked.request)
    try:
        upstream = getattr(stream.head, "headers", None)
        await talk.begin(200, EVENTS, {**_NOT_KEPT, **(limits_told(upstream) if upstream else {})})
        try:
            if asked.response is None:
                last = await _tell_events(talk, stream, asked)
            else:
                last = await _tell_response(talk, stream, asked.response)
                if asked.meta:
                    last += _told_last(None, stream.meta, asked.response)
        except ClientGoneError:
            raise
        except asyncio.CancelledError:
            if not talk.gone:  # the server stops, and this took longer than it waits
                await talk.end(_failure(stopping().error, asked.response or asked.request))
            raise
        except Exception as error:  # noqa: BLE001 - the status is out: whatever it is, the client is told
            problem = problem_of(error)
            why = traced(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream broke off: %s", why)
            last = _failure(problem.error, asked.response or asked.request)
        await talk.end(last)
    finally:
        await stream.close()


async def _tell_response(talk: Talk, stream: AsyncStream[Any], response: Request) -> bytes:
    """Tell a response that is played as a chat completion, and return its end."""
    events = Events(response)
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


async def _tell_events(talk: Talk, stream: AsyncStream[Any], asked: Asked) -> bytes:
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


def dumped(value: Any) -> bytes:
    """Return an answer or a chunk as JSON: the fields that were set, as they are called on the wire."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump_json(exclude_unset=True, by_alias=True, warnings=False).encode()
    return json_of(value)


def told(call: Call) -> dict[str, Any]:
    """Return what the extension says of a call; money as text, exact."""
    return {
        "cost": _plain(call.cost),
        "route": _plain(call.route),
        "speculation": _plain(call.speculation),
    }


def _as_sent(exchange: Exchange, request: Request) -> bytes | None:
    """Return the body that an endpoint sent, where it speaks OpenAI's language and nothing was made of it."""
    if exchange.wire is None or request.strategy is not None or exchange.dialect is not dialect("openai"):
        return None
    return exchange.wire.content


def _event(chunk: Any, *, named: bool) -> bytes:
    data = dumped(chunk)
    if not named:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (str(getattr(chunk, "type", "message")).encode(), data)


def _told_last(last: Any, call: Call, request: Request) -> bytes:
    """Return the event that says what a streamed call cost: a chunk of its own, without choices."""
    if request.method is RESPONSE:
        return _named({"type": "specclient.meta", EXTENSION: told(call)})
    head = {name: getattr(last, name, None) for name in ("id", "created", "model")}
    kind = _OBJECTS[request.method.name]
    return b"data: %b\n\n" % json_of({**head, "object": kind, "choices": [], EXTENSION: told(call)})


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
