"""Decoding of responses: complete answers, streams of events, and bodies that a caller reads itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

from specclient.call.errors import truncated_event_error
from specclient.call.result import CallResult
from specclient.errors import APIError, APIResponseValidationError
from specclient.http_transport.http import SSEStream
from specclient.http_transport.sse import ServerSentEvent
from specclient.providers import Dialect, Endpoint, dialect, dialect_of
from specclient.routing.destinations import Destination
from specclient.types.base import WireModel
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireResponse


def decode_reply(endpoint: Endpoint, request: Request, reply: WireResponse) -> CallResult:
    """Decode a complete response; an error in decoding is part of the result, not raised."""
    try:
        value = dialect_of(endpoint).decode(request.method, reply)
    except APIError as error:
        # The traceback's frames would refer to the result that holds the error: a reference cycle.
        return CallResult(None, reply, error.with_traceback(None), dialect_of(endpoint))
    if isinstance(value, WireModel):
        value.attach_request_id(reply.request_id)
    return CallResult(value, reply, None, dialect_of(endpoint))


def decode_body(dialect: Dialect, request: Request, content: bytes, *, to: Any = None) -> Any:
    """Decode a body as the result of the request's method, or as another type.

    Args:
        to: the type to return; None for the method's own.
    """
    method = request.method if to is None else replace(request.method, response_type=to, page=None)
    return dialect.decode(method, WireResponse(200, {}, content))


class ChunkDecoder:
    """Decodes the events of one stream into chunks."""

    def __init__(self, dialect: Dialect, request: Request) -> None:
        self._read = dialect.events(request.method)

    def decode(self, events: list[ServerSentEvent], into: list[Any] | None = None) -> list[Any]:
        """Return the chunks of the events.

        Args:
            into: a list that the chunks are appended to. If an event raises, it keeps the earlier ones.

        Raises:
            APIError: an event is an error, or cannot be decoded.
        """
        read, into = self._read, [] if into is None else into
        for event in events:
            if not event.data:
                continue
            decoded = read(event.data, event.event)
            if type(decoded) is list:
                into += decoded
            elif decoded is not None:
                into.append(decoded)
        return into


async def decode_events(
    endpoint: Endpoint, request: Request, events: SSEStream
) -> AsyncGenerator[list[Any], None]:
    """Yield the chunks of a stream, one list for each read from the network.

    Chunks that come before an error are yielded before the error is raised.
    """
    decoder = ChunkDecoder(dialect_of(endpoint), request)
    async for batch in events.batches():
        chunks: list[Any] = []
        failure: APIError | None = None
        try:
            decoder.decode(batch, chunks)
        except APIResponseValidationError as error:
            failure = truncated_event_error(endpoint) if events.open_ended else error
        except APIError as error:
            failure = error
        if chunks:
            yield chunks
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the traceback's frame holds it: a reference cycle


def usage_reader(destination: Destination) -> Callable[[Any], Usage | None]:
    """Return the function that reads an answer's or a chunk's usage; engines answer in OpenAI's format."""
    return (dialect_of(destination) if isinstance(destination, Endpoint) else dialect("openai")).usage


def is_for_caller(chunk: Any, request: Request, *, usage: bool) -> bool:
    """Return whether a chunk without choices is passed to the caller.

    The client itself asks servers for usage, and its own server for telemetry; chunks that only answer
    these added fields are not part of what the caller requested.

    Args:
        usage: whether the caller requested usage.
    """
    if chunk.usage is not None:
        return usage
    return "specclient" not in (chunk.__pydantic_extra__ or {}) or "specclient" in request.options.body
