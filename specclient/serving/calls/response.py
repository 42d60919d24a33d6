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
from specclient.openai_http.request import EXTENSION, IncomingCall
from specclient.openai_http.response import (
    DONE,
    EVENTS,
    call_extension,
    chunk_events,
    error_event,
    json_bytes_of,
    meta_event,
    named_events,
    upstream_body,
)
from specclient.openai_http.responses_api.response import ResponseEventBuilder, response_of
from specclient.providers.encoding import json_of
from specclient.serving.exchange import ClientDisconnectedError, HTTPExchange
from specclient.types.call import MeteredModel
from specclient.types.inference_methods import RESPONSE
from specclient.types.request import Request

_log = logging.getLogger("specclient")

_NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


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
        content = upstream_body(result, call.request) or json_bytes_of(value)
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
                    last += meta_event(None, stream.meta, call.response)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:
            if not exchange.disconnected:  # the grace period of the shutdown is over
                await exchange.finish(error_event(shutting_down().error, call.response or call.request))
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent; report the error as an event
            problem = serving_error_of(error)
            why = exception_summary(error) if problem.status == 500 else type(error).__name__
            _log.warning("a stream was interrupted: %s", why)
            last = error_event(problem.error, call.response or call.request)
        await exchange.finish(last)
    finally:
        await stream.close()


async def _send_response_events(exchange: HTTPExchange, stream: AsyncStream[Any], response: Request) -> bytes:
    """Send a chat completion as events of the Responses API; return the last events."""
    events = ResponseEventBuilder(response)
    await exchange.write(named_events(events.begin()))
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await exchange.write(named_events(event for chunk in batch for event in events.of(chunk)))
    return named_events(events.end())


async def _send_events(exchange: HTTPExchange, stream: AsyncStream[Any], call: IncomingCall) -> bytes:
    """Send the events of a stream; return the last events."""
    last = None
    while True:
        try:
            batch = await stream.next_batch()
        except StopAsyncIteration:
            break
        await exchange.write(chunk_events(batch, call.request))
        last = batch[-1] if batch else last
    extension = meta_event(last, stream.meta, call.request) if call.meta else b""
    return extension if call.request.method is RESPONSE else extension + DONE
