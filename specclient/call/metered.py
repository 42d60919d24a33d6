"""Calls of a model at one destination: encode, send, decode, and note the facts in the record.

A destination is a hosted endpoint, reached over HTTP, or an engine in this process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from specclient.call.body_recorder import BodyRecorder
from specclient.call.decode import decode_events, decode_reply, usage_reader
from specclient.call.encode import encoded_off_loop, engine_request, without_added_fields
from specclient.call.errors import not_served_in_process, truncated_stream_error
from specclient.call.path_usage import PATH_OPERATIONS, path_usage
from specclient.call.recorder import CallRecorder
from specclient.call.result import CallResult
from specclient.call.usage_request import (
    StreamStart,
    adds_usage_request,
    refuses_usage_request,
    withholds_usage,
    without_usage_request,
)
from specclient.errors import BadRequestError, UnprocessableEntityError
from specclient.http_transport.http import Transport
from specclient.http_transport.response import SSEStream
from specclient.providers import Endpoint, dialect_of
from specclient.routing.destinations import Destination
from specclient.runtime.forks import import_lock
from specclient.types.backend import Backend, EngineTelemetry
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest

if TYPE_CHECKING:
    from specclient.telemetry.prometheus import CounterValues


async def execute(
    request: Request,
    decision: Decision,
    destination: Destination,
    record: CallRecorder,
    transport: Transport,
) -> CallResult:
    """Send a request and return its complete answer."""
    if isinstance(destination, Endpoint):
        return await _execute_hosted(request, decision, destination, record, transport)
    answer, telemetry = await destination.complete(engine_request(request, decision), decision.model)
    record.note_engine_telemetry(telemetry)
    record.note_answer(answer, usage_reader(destination)(answer))
    return CallResult(answer)


async def _execute_hosted(
    request: Request, decision: Decision, endpoint: Endpoint, record: CallRecorder, transport: Transport
) -> CallResult:
    wire = await encoded_off_loop(request, decision, endpoint, record)
    before = await _counters(endpoint, transport) if endpoint.metrics else None
    reply = await transport.fetch(wire)
    record.note_headers(reply.attempts, reply.request_id, reply.headers)
    await _note_counters(endpoint, transport, record, before)
    result = decode_reply(endpoint, request, reply, decision.model)
    if result.error is None:
        record.note_answer(result.value, _usage_of(request, endpoint, result))
        if (used := record.total_tokens) is not None:
            transport.used(wire, used)
    return result


def _usage_of(request: Request, endpoint: Endpoint, result: CallResult) -> Usage | None:
    if request.operation in PATH_OPERATIONS and result.reply is not None:
        return path_usage(request, result.reply.content)
    return usage_reader(endpoint)(result.value)


def stream(
    request: Request,
    decision: Decision,
    destination: Destination,
    record: CallRecorder,
    transport: Transport,
) -> AsyncGenerator[Any, None]:
    """Yield a :class:`StreamStart` once the answer has begun, then lists of chunks.

    The chunks themselves are noted by the caller, which sees every one of them anyway.
    """
    if isinstance(destination, Endpoint):
        return _stream_hosted(request, decision, destination, record, transport)
    return _stream_engine(request, decision, destination, record)


async def _stream_hosted(
    request: Request, decision: Decision, endpoint: Endpoint, record: CallRecorder, transport: Transport
) -> AsyncGenerator[Any, None]:
    before = await _counters(endpoint, transport) if endpoint.metrics else None
    async with AsyncExitStack() as opened:
        wire, events, sent_to, refused = await _opened_stream(
            request, decision, endpoint, record, transport, opened=opened
        )
        record.note_headers(events.attempts + refused, events.request_id, events.headers)
        yield StreamStart(events, withholds_usage(request, sent_to))
        async for batch in decode_events(endpoint, request, events, decision.model):
            yield batch
        await _note_counters(endpoint, transport, record, before)
        if (used := record.total_tokens) is not None:
            transport.used(wire, used)
        if not (events.done or record.is_complete):
            raise truncated_stream_error(endpoint)


async def _opened_stream(
    request: Request,
    decision: Decision,
    endpoint: Endpoint,
    record: CallRecorder,
    transport: Transport,
    *,
    opened: AsyncExitStack,
) -> tuple[WireRequest, SSEStream, Endpoint, int]:
    """Open a stream, again without the request for usage if the endpoint refuses it.

    Args:
        opened: closes the stream.

    Returns:
        The request as sent, the stream, the endpoint as the request was encoded for it, and the number of
        refused requests before it.
    """
    adds = adds_usage_request(request, endpoint)
    if adds and endpoint.base_url in transport.usage_refused:
        adds, endpoint = False, without_usage_request(endpoint)
    wire = await encoded_off_loop(request, decision, endpoint, record)
    try:
        return wire, await opened.enter_async_context(transport.stream(wire)), endpoint, 0
    except (BadRequestError, UnprocessableEntityError) as error:
        if not (adds and refuses_usage_request(error)):
            raise
    endpoint = without_usage_request(endpoint)
    wire = await encoded_off_loop(request, decision, endpoint, record)
    events = await opened.enter_async_context(transport.stream(wire))
    transport.usage_refused.add(endpoint.base_url)
    return wire, events, endpoint, 1


async def _stream_engine(
    request: Request, decision: Decision, engine: Backend, record: CallRecorder
) -> AsyncGenerator[Any, None]:
    started = False
    async with aclosing(engine.stream(engine_request(request, decision), decision.model)) as items:
        async for item in items:
            if not started:
                started = True
                yield StreamStart(None, withholds_usage(request, engine))
            if isinstance(item, EngineTelemetry):
                record.note_engine_telemetry(item)
            else:
                yield [item]


async def stream_bytes(
    request: Request,
    decision: Decision,
    destination: Destination,
    record: CallRecorder,
    transport: Transport,
) -> AsyncGenerator[Any, None]:
    """Yield ``(response, dialect)`` once the endpoint has answered, then lists of the body's bytes.

    The part of the body that the caller has read is noted in the record, however the stream ends.

    Raises:
        NotFoundError: the destination is an engine in this process, which sends no HTTP body.
    """
    if not isinstance(destination, Endpoint):
        raise not_served_in_process(decision.provider)
    body_record = BodyRecorder(destination, request, record)
    endpoint = without_added_fields(destination, request)
    try:
        wire = await encoded_off_loop(request, decision, endpoint, record)
        before = await _counters(endpoint, transport) if endpoint.metrics else None
        async with transport.open(wire) as body:
            record.note_headers(body.attempts, body.request_id, body.headers)
            body_record.begin(body.headers.get("content-type"))
            yield body, dialect_of(endpoint)
            async for chunk in body.chunks():
                body_record.feed(chunk)
                yield [chunk]
            await _note_counters(endpoint, transport, record, before)
    finally:
        body_record.close()
    if (used := record.total_tokens) is not None:
        transport.used(wire, used)


async def _counters(endpoint: Endpoint, transport: Transport) -> CounterValues | None:
    """Return the values of an endpoint's speculation counters; None where they cannot be read."""
    with import_lock:
        from specclient.telemetry.scraper import scrape_counters  # noqa: PLC0415 - few endpoints have them

    return await scrape_counters(transport, endpoint)


async def _note_counters(
    endpoint: Endpoint, transport: Transport, record: CallRecorder, before: CounterValues | None
) -> None:
    """Note how far an endpoint's counters have moved since they were read before the call."""
    if before is not None and (after := await _counters(endpoint, transport)) is not None:
        record.note_counters(before, after)
