"""Sending of a call's result: JSON, or for a stream server-sent events or lines of JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from specclient.call.pipeline import Pipeline
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.openai_http.cache_request import CACHE_HEADER
from specclient.openai_http.errors import (
    ServingError,
    exception_summary,
    serving_error_of,
    shutting_down,
    upstream_limit_headers,
)
from specclient.openai_http.request import IncomingCall
from specclient.openai_http.response import EVENTS, vectors_body
from specclient.runtime.event_loop import run_in_thread
from specclient.serving.exchange import ClientDisconnectedError, HTTPExchange
from specclient.types.call import Call

_log = logging.getLogger("specclient")

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
#: Maximum bytes of an upstream's incomplete event that are held back.
_LARGEST_EVENT = 2**18
_NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class StreamEncoder(Protocol):
    """Encodes the chunks of one stream as server-sent events, or as lines of JSON."""

    def begin(self) -> bytes:
        """Return the events before the first chunk."""
        ...

    def chunks(self, chunks: Sequence[Any]) -> bytes:
        """Return the events of chunks that arrived together."""
        ...

    def end(self, record: Callable[[], Call]) -> bytes:
        """Return the events after the last chunk; ``record`` returns the call's record."""
        ...

    def failed(self, problem: ServingError) -> bytes:
        """Return the event of an error that ends the stream."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The form of an API's answers.

    Attributes:
        whole: returns the body of a complete answer.
        encoder: returns the encoder of a stream, given the call and a function that returns its record.
        meta_event: returns the event with a call's record that follows forwarded events of an upstream; None
            for APIs whose streams are never forwarded.
        stream_type: the media type of a stream.
    """

    whole: Callable[[CallResult, IncomingCall], bytes]
    encoder: Callable[[IncomingCall, Callable[[], Call]], StreamEncoder]
    meta_event: Callable[[Call], bytes] | None = None
    stream_type: str = EVENTS


async def send_whole(
    exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall, form: AnswerFormat
) -> None:
    """Execute a call and send a JSON response.

    Raises:
        OpenAIError: the call failed; nothing has been sent.
    """
    result = await pipeline.execute(call.request)
    if call.request.operation == "embedding" and result.reply is None:
        content = await run_in_thread(partial(vectors_body, result, call))
    else:
        content = form.whole(result, call)
    headers = {}
    if result.reply is not None:
        headers = upstream_limit_headers(result.reply.headers)
    record: Call | None = getattr(result.value, "_meta", None)
    if record is not None and record.cached:
        headers[CACHE_HEADER] = "hit"
    await exchange.respond(content, headers=headers)


async def send_stream(
    exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall, form: AnswerFormat
) -> None:
    """Execute a call and send its events, or lines. An error after the first one becomes the last one.

    Raises:
        OpenAIError: the call failed before the first event; nothing has been sent.
    """
    stream = await pipeline.stream(call.request)
    events = form.encoder(call, lambda: stream.meta)

    async def send() -> bytes:
        await exchange.write(events.begin())
        while True:
            try:
                batch = await stream.next_batch()
            except StopAsyncIteration:
                return events.end(lambda: stream.meta)
            await exchange.write(events.chunks(batch))

    await _send_until_end(exchange, stream, send, events.failed, form.stream_type)


async def send_upstream_stream(
    exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall, form: AnswerFormat
) -> None:
    """Execute a call and forward the upstream's events unchanged; see :func:`send_stream`.

    It serves clients that use the API of the upstream. An incomplete event is not sent.
    """
    stream = await pipeline.stream_bytes(call.request)
    events = form.encoder(call, lambda: stream.meta)

    async def send() -> bytes:
        rest = b""
        async for piece in stream:
            rest += piece
            end = max(rest.rfind(mark) + len(mark) if mark in rest else 0 for mark in _EVENT_ENDS)
            if not end and len(rest) > _LARGEST_EVENT:
                end = len(rest)
            await exchange.write(rest[:end])
            rest = rest[end:]
        return rest if form.meta_event is None or not call.meta else rest + form.meta_event(stream.meta)

    await _send_until_end(exchange, stream, send, events.failed)


async def _send_until_end(
    exchange: HTTPExchange,
    stream: AsyncStream[Any],
    send: Callable[[], Awaitable[bytes]],
    failed: Callable[[ServingError], bytes],
    stream_type: str = EVENTS,
) -> None:
    """Send a stream and close it.

    Args:
        send: sends the events; returns the last ones.
        failed: returns the event of an error.
        stream_type: the media type.
    """
    try:
        upstream: Mapping[str, str] | None = getattr(stream.http, "headers", None)
        headers = {**_NO_CACHE, **(upstream_limit_headers(upstream) if upstream else {})}
        if stream.cached:
            headers[CACHE_HEADER] = "hit"
        await exchange.start(200, stream_type, headers)
        try:
            last = await send()
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not exchange.disconnected:  # the grace period of the shutdown is over
                await exchange.finish(failed(shutting_down()))
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent; report the error as an event
            problem = serving_error_of(error)
            why = exception_summary(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream was interrupted: %s", why)
            last = failed(problem)
        await exchange.finish(last)
    finally:
        await stream.close()
