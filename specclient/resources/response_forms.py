"""The results of ``with_raw_response`` (raw) and ``with_streaming_response`` (an unread body)."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from specclient.call.decode import ChunkDecoder, decode_read_body, value_as_sent
from specclient.call.errors import caller_stream_error
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream, Stream, attempts_of, limits_of
from specclient.errors import APIError
from specclient.http_transport.event_frames import FrameDecoder, stream_decoder
from specclient.http_transport.sse import ServerSentEvent, SSEDecoder
from specclient.resources.callers import ResultConverter
from specclient.resources.raw_response import AsyncStreamedResponse, RawResponse, StreamedResponse
from specclient.types.as_sent import chunks_as_sent
from specclient.types.request import Request
from specclient.types.wire import WireResponse

A = TypeVar("A", bound=AsyncStreamedResponse[Any])
S = TypeVar("S", bound=StreamedResponse[Any])


def raw(request: Request, exchange: CallResult, into: ResultConverter) -> RawResponse[Any]:
    """Return the raw response of a call without streaming."""
    wire = exchange.reply

    def parse(to: Any) -> Any:
        if to is not None:
            reply = wire or WireResponse(200, {"content-type": "application/json"}, content)
            return value_as_sent(*decode_read_body(exchange.dialect, request, reply, to))
        return value_as_sent(request, exchange) if into is None else into(exchange.unwrap())

    if wire is None:  # an engine in this process: no HTTP response
        content = exchange.value.model_dump_json().encode()
        return RawResponse(None, content, parse)
    content = wire.content
    return RawResponse(wire.response, content, parse, wire.attempts)


def raw_stream(stream: Any, into: ResultConverter) -> RawResponse[Any]:
    """Return the raw response of a streamed call."""
    return RawResponse(
        stream.response, None, lambda _: stream if into is None else into(stream), attempts_of(stream)
    )


def unread(
    request: Request, body: Any, into: ResultConverter, *, is_async: bool
) -> AsyncStreamedResponse[Any] | StreamedResponse[Any]:
    """Return a response with an unread body."""
    if is_async:
        return AsyncStreamedResponse(body, *_readers(request, body, into, _decoded_async))
    return StreamedResponse(body, *_readers(request, body, into, _decoded_sync))


def _readers(
    request: Request, body: Any, into: ResultConverter, decoded: Callable[[Request, Any], Any]
) -> tuple[Callable[[bytes, Any], Any], Callable[[Any], Any] | None]:
    """Return the parser of a complete body, and for streamed calls the function that makes the stream."""

    def parse(content: bytes, to: Any) -> Any:
        if to is None and request.method.response_type is bytes:
            return content
        http = getattr(body, "async_stream", lambda: body)().http
        headers = {} if http is None else http.headers
        reply = WireResponse(200, headers, content, make_response=lambda: body.response)
        if into is None or to is not None:
            return value_as_sent(*decode_read_body(body.dialect, request, reply, to))
        return into(decode_read_body(body.dialect, request, reply)[1].unwrap())

    def events(unread: Any) -> Any:
        stream = decoded(request, unread).share_response(unread.response)
        return stream if into is None else into(stream)

    return parse, events if request.stream else None


def _decoder_of(body: AsyncStream[bytes]) -> SSEDecoder | FrameDecoder:
    """Return the decoder of the events in a body."""
    kind = None if body.http is None else body.http.headers.get("content-type")
    return stream_decoder(kind, limits_of(body).max_event_bytes)


def _decoded(
    read: ChunkDecoder, events: list[ServerSentEvent], http: Any
) -> tuple[list[Any], APIError | None]:
    """Return the chunks of events, up to the first error, and the error.

    Args:
        http: the open response; None where no HTTP was used.
    """
    chunks: list[Any] = []
    failure: APIError | None = None
    try:
        read.decode(events, chunks)
    except APIError as error:
        if http is not None:
            http.complete(error)
        failure = caller_stream_error(error.with_traceback(None))
    return chunks_as_sent(chunks), failure


def _decoded_async(request: Request, body: AsyncStream[bytes]) -> AsyncStream[Any]:
    """Return the events of a body as it comes."""

    async def batches() -> AsyncGenerator[list[Any], None]:
        decoder, read = _decoder_of(body), ChunkDecoder(body.dialect, request)
        piece: bytes | None = b""
        failure: APIError | None = None
        try:
            while piece is not None and failure is None:
                piece = await anext(body, None)
                found = decoder.flush() if piece is None else decoder.feed(piece)
                chunks, failure = _decoded(read, found, body.http)
                if chunks:
                    yield chunks
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback holds this frame
            await body.close()

    return AsyncStream(batches(), lambda: body.meta, body.http, body.dialect)


def _decoded_sync(request: Request, body: Stream[bytes]) -> Stream[Any]:
    """Return the events of a body as it comes."""
    return Stream(_DecodingSource(request, body))


class _DecodingSource:
    """The source of a synchronous stream that decodes the bytes of a body."""

    def __init__(self, request: Request, body: Stream[bytes]) -> None:
        self._body = body
        self._http = body.async_stream().http
        self._decoder = _decoder_of(body.async_stream())
        self._chunks = ChunkDecoder(body.dialect, request)
        self._ready: list[Any] = []
        self._failure: APIError | None = None
        self._ended = False

    def next(self) -> Any:
        while not self._ready:
            if self._failure is not None:
                self._ended, failure, self._failure = True, self._failure, None
                try:
                    raise failure
                finally:
                    del failure  # its traceback holds this frame
            if self._ended:
                raise StopIteration
            piece = next(self._body, None)
            self._ended = piece is None
            events = self._decoder.flush() if piece is None else self._decoder.feed(piece)
            ready, self._failure = _decoded(self._chunks, events, self._http)
            self._ready = ready[::-1]
        return self._ready.pop()

    def meta(self) -> Any:
        return self._body.meta

    def async_stream(self) -> AsyncStream[Any]:
        return self._body.async_stream()

    def keep_captured(self) -> None:
        """Do nothing: the bytes are those of the body."""

    def close(self) -> None:
        self._body.close()

    def cancel_nowait(self) -> None:
        """Do nothing: the stream of the body cancels itself."""


class StreamingResponseView:
    """A resource whose every method opens a context."""

    def __init__(self, resource: Any, context: Callable[[Callable[[], Any]], Any]) -> None:
        self._resource = resource
        self._context = context

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._resource, name)
        if not callable(found):
            return StreamingResponseView(found, self._context)  # a resource within it

        @functools.wraps(found)
        def opens(*args: Any, **kwargs: Any) -> Any:
            return self._context(functools.partial(found, *args, **kwargs))

        return opens


class AsyncResponseContext(Generic[A]):
    """``async with …with_streaming_response.create(…) as response``."""

    def __init__(self, send: Callable[[], Awaitable[A]]) -> None:
        self._send = send

    async def __aenter__(self) -> A:
        self._response = await self._send()
        return self._response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.close()


class SyncResponseContext(Generic[S]):
    """``with …with_streaming_response.create(…) as response``."""

    def __init__(self, send: Callable[[], S]) -> None:
        self._send = send

    def __enter__(self) -> S:
        self._response = self._send()
        return self._response

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()
