"""Sending of a call's result: JSON, or server-sent events for a stream."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from specclient.call.pipeline import Pipeline
from specclient.call.stream import AsyncStream
from specclient.openai_http.errors import (
    exception_summary,
    serving_error_of,
    shutting_down,
    upstream_limit_headers,
)
from specclient.openai_http.request import IncomingCall
from specclient.openai_http.response import EVENTS, EventEncoder, whole_body
from specclient.serving.exchange import ClientDisconnectedError, HTTPExchange

_log = logging.getLogger("specclient")

_NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


async def send_whole(exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall) -> None:
    """Execute a call and send a JSON response.

    Raises:
        OpenAIError: the call failed; nothing has been sent.
    """
    result = await pipeline.execute(call.request)
    content = whole_body(result, call)
    headers = {}
    if result.reply is not None:
        headers = upstream_limit_headers(result.reply.headers)
    await exchange.respond(content, headers=headers)


async def send_stream(exchange: HTTPExchange, pipeline: Pipeline, call: IncomingCall) -> None:
    """Execute a call and send server-sent events. An error after the first event becomes the last event.

    Raises:
        OpenAIError: the call failed before the first event; nothing has been sent.
    """
    stream = await pipeline.stream(call.request)
    events = EventEncoder(call)
    try:
        upstream = getattr(stream.http, "headers", None)
        await exchange.start(
            200, EVENTS, {**_NO_CACHE, **(upstream_limit_headers(upstream) if upstream else {})}
        )
        try:
            last = await _send_events(exchange, stream, events)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not exchange.disconnected:  # the grace period of the shutdown is over
                await exchange.finish(events.error(shutting_down().error))
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent; report the error as an event
            problem = serving_error_of(error)
            why = exception_summary(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream was interrupted: %s", why)
            last = events.error(problem.error)
        await exchange.finish(last)
    finally:
        await stream.close()


async def _send_events(exchange: HTTPExchange, stream: AsyncStream[Any], events: EventEncoder) -> bytes:
    """Send the events of a stream; return the last events."""
    await exchange.write(events.begin())
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await exchange.write(events.chunks(batch))
    return events.end(lambda: stream.meta)
