"""One exchange of the transport: a call through the pipeline, and its result as a response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, TypeVar

from specclient.call.pipeline import Pipeline
from specclient.call.stream import AsyncStream
from specclient.errors import APIError, APITimeoutError, OpenAIError
from specclient.official_client.answer import TransportAnswer, TransportHead, call_headers, upstream_headers
from specclient.official_client.failures import failure_answer, has_openais_api, is_connection_failure
from specclient.official_client.outgoing import OutgoingCall
from specclient.official_client.records import CallCapture
from specclient.openai_http.errors import serving_error_of, upstream_limit_headers
from specclient.openai_http.response import EVENTS, JSON, EventEncoder, upstream_body, whole_body
from specclient.types.call import Call, MeteredModel

T = TypeVar("T")


async def whole(call: OutgoingCall, pipeline: Pipeline) -> TransportAnswer:
    """Serve a call and return its complete response; that of a failure if it fails.

    Raises:
        APIConnectionError: there was no response.
    """
    request = call.call.request
    with CallCapture(pipeline) as capture:
        try:
            result = await _within_limit(call, pipeline.execute(request))
            value = result.value
            record = value.meta if isinstance(value, MeteredModel) else capture.call
            content = None if result.error is None else upstream_body(result, request)
            if content is None:
                content = whole_body(result, call.call)
        except OpenAIError as error:
            if is_connection_failure(error):
                raise
            return failure_answer(error, capture.call, pipeline.destinations)
    return TransportAnswer(_head(result.reply, record, pipeline, JSON), content, record)


async def opened(call: OutgoingCall, pipeline: Pipeline) -> AsyncStream[bytes]:
    """Serve a call as a stream of bytes whose ``http`` is an :class:`TransportHead`.

    A failure before the response has begun is a stream, too.

    Raises:
        APIConnectionError: there was no response.
    """
    stream: AsyncStream[Any]
    with CallCapture(pipeline) as capture:
        try:
            if call.is_raw:
                stream = await pipeline.stream_bytes(call.call.request)
            else:
                stream = await _within_limit(call, pipeline.stream(call.call.request))
        except OpenAIError as error:
            if is_connection_failure(error):
                raise
            return stream_of(failure_answer(error, capture.call, pipeline.destinations))
    record = stream.meta if call.call.request.method.metered else None
    head = _head(stream.http, record, pipeline, EVENTS)
    if (  # the body is sent on as it was received
        call.is_raw
        and "content-encoding" not in stream.http.headers
        and "content-length" in stream.http.headers
    ):
        head.headers.append(("content-length", stream.http.headers["content-length"]))
    body = _bytes(stream) if call.is_raw else _events(call, stream)
    return AsyncStream(body, lambda: stream.meta, head)


def stream_of(answer: TransportAnswer) -> AsyncStream[bytes]:
    """Return a complete response as a stream."""

    async def body() -> AsyncGenerator[list[bytes], None]:
        yield [answer.content]

    def meta() -> Call:
        if answer.call is None:
            raise AttributeError("the call was not sent, so it has no record")
        return answer.call

    return AsyncStream(body(), meta, answer.head)


async def _within_limit(call: OutgoingCall, step: Awaitable[T]) -> T:
    """Return the result of a step of an engine.

    Raises:
        APITimeoutError: it took longer than the request's read timeout.
    """
    if call.silence_s is None:
        return await step
    limit = asyncio.timeout(call.silence_s)
    try:
        async with limit:
            return await step
    except TimeoutError:
        if not limit.expired():
            raise
    raise APITimeoutError(
        message=f"Request timed out. {call.call.request.model} sent nothing within the read timeout of "
        f"{call.silence_s} s; pass a larger timeout= if it needs longer."
    )


async def _bytes(stream: AsyncStream[bytes]) -> AsyncGenerator[list[bytes], None]:
    try:
        while True:
            try:
                batch = await stream.next_batch()
            except StopAsyncIteration:
                return
            yield batch
    finally:
        await stream.close()


async def _events(call: OutgoingCall, stream: AsyncStream[Any]) -> AsyncGenerator[list[bytes], None]:
    """Yield the events of a stream, those that arrived together as one piece.

    The call is recorded before its last event is yielded, because the official client closes the response
    when it reads ``[DONE]``.
    """
    events = EventEncoder(call.call)
    try:
        if data := events.begin():
            yield [data]
        while True:
            try:
                batch = await _within_limit(call, stream.next_batch())
            except StopAsyncIteration:
                break
            if data := events.chunks(batch):
                yield [data]
        if data := events.end(lambda: stream.meta):
            yield [data]
    except OpenAIError as error:
        if is_connection_failure(error):
            raise
        yield [events.error(_error_object(error))]
    finally:
        await stream.close()


def _error_object(error: OpenAIError) -> Mapping[str, Any]:
    """Return OpenAI's error object of an error in a stream: the upstream's own, if it sent one."""
    if isinstance(error, APIError) and isinstance(error.body, Mapping) and "message" in error.body:
        return error.body
    return serving_error_of(error).error


def _head(upstream: Any, record: Call | None, pipeline: Pipeline, kind: str) -> TransportHead:
    """Return status and headers of a response.

    Args:
        upstream: the upstream's response, with ``status``, ``headers`` and ``request_id``; None for an engine
            in this process.
        record: the record of the call; None for a call without a model.
        kind: the media type of a body that is not the upstream's own.
    """
    added = {} if record is None else call_headers(record)
    if upstream is None:
        return TransportHead(200, [("content-type", kind), *added.items()])
    if has_openais_api(record, pipeline.destinations):
        passed = upstream_headers(upstream.headers.items(), without=added)
        return TransportHead(upstream.status, [*passed, *added.items()])
    made = {"content-type": kind, **upstream_limit_headers(upstream.headers), **added}
    if upstream.request_id:
        made["x-request-id"] = upstream.request_id
    return TransportHead(upstream.status, [*made.items()])
