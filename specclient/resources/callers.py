"""Turn a resource's request into its result: parsed, raw or unread, for clients of both kinds."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, Self

from specclient.loops import check_asyncio
from specclient.pipeline import Pipeline
from specclient.reading import Chunks, Exchange, answer_from
from specclient.resources.base import Runner
from specclient.resources.paging import async_page, sync_page
from specclient.resources.raw import AsyncStreamedResponse, RawResponse, StreamedResponse
from specclient.stream import AsyncStream, Stream
from specclient.transport.sse import Decoder
from specclient.types.request import Request

Form = Literal["parsed", "raw", "unread"]
Into = Callable[[Any], Any] | None
Secret = Callable[[], str | None]


def _no_secret() -> None:
    return None


class AsyncCaller:
    """Serves the resources of an asynchronous client; see :class:`specclient.resources.base.Caller`."""

    def __init__(self, pipeline: Pipeline, form: Form = "parsed", *, secret: Secret = _no_secret) -> None:
        self._pipeline = pipeline
        self._form = form
        self._secret = secret

    @property
    def webhook_secret(self) -> str | None:
        """What the client's webhooks are signed with."""
        return self._secret()

    async def call(self, request: Request, into: Into = None) -> Any:
        check_asyncio()
        if self._form == "unread":
            body = await self._pipeline.open(request)
            return AsyncStreamedResponse(body, *_readers(request, body, into, _decoded_async))
        if request.stream:
            stream = await self._pipeline.stream(request)
            return _shown_stream(self._form, stream, into)
        if self._form == "raw":
            return _raw(request, await self._pipeline.exchange(request), into)
        value = await self._pipeline.call(request)
        return value if into is None else into(value)

    def page(self, request: Request) -> Any:
        return async_page(self, AsyncCaller(self._pipeline), request)

    def raw(self) -> Self:
        return type(self)(self._pipeline, "raw", secret=self._secret)

    def streaming(self) -> Self:
        return type(self)(self._pipeline, "unread", secret=self._secret)

    def view(self, resource: Any) -> Any:
        return _View(resource, _AsyncContext)


class SyncCaller:
    """Serves the resources of a synchronous client; see :class:`specclient.resources.base.Caller`."""

    def __init__(
        self, pipeline: Pipeline, runner: Runner, form: Form = "parsed", *, secret: Secret = _no_secret
    ) -> None:
        self._pipeline = pipeline
        self._runner = runner
        self._form = form
        self._secret = secret

    @property
    def webhook_secret(self) -> str | None:
        """What the client's webhooks are signed with."""
        return self._secret()

    def call(self, request: Request, into: Into = None) -> Any:
        if self._form == "unread":
            body = self._runner.stream(self._pipeline.open, request)
            return StreamedResponse(body, *_readers(request, body, into, _decoded_sync))
        if request.stream:
            stream = self._runner.stream(self._pipeline.stream, request)
            return _shown_stream(self._form, stream, into)
        if self._form == "raw":
            return _raw(request, self._runner.run(self._pipeline.exchange, request), into)
        value = self._runner.run(self._pipeline.call, request)
        return value if into is None else into(value)

    def page(self, request: Request) -> Any:
        return sync_page(self, SyncCaller(self._pipeline, self._runner), request)

    def raw(self) -> Self:
        return type(self)(self._pipeline, self._runner, "raw", secret=self._secret)

    def streaming(self) -> Self:
        return type(self)(self._pipeline, self._runner, "unread", secret=self._secret)

    def view(self, resource: Any) -> Any:
        return _View(resource, _SyncContext)


def _raw(request: Request, exchange: Exchange, into: Into) -> RawResponse[Any]:
    """Return a whole answer as a raw response."""
    wire = exchange.wire

    def parse(to: Any) -> Any:
        if to is not None:
            return answer_from(exchange.dialect, request, content, to=to)
        value = exchange.answer()
        return value if into is None else into(value)

    if wire is None:  # an engine in this process, which speaks no HTTP
        content = exchange.value.model_dump_json().encode()
        return RawResponse(None, content, parse)
    content = wire.content
    return RawResponse(wire.response, content, parse)


def _shown_stream(form: Form, stream: Any, into: Into) -> Any:
    if form == "raw":
        return RawResponse(stream.response, None, lambda _: stream if into is None else into(stream))
    return stream if into is None else into(stream)


def _readers(
    request: Request, body: Any, into: Into, decoded: Callable[[Request, Any], Any]
) -> tuple[Callable[[bytes, Any], Any], Callable[[Any], Any] | None]:
    """Return how a body is parsed once it has been read, and how a streamed call's is as it comes."""

    def parse(content: bytes, to: Any) -> Any:
        value = answer_from(body.dialect, request, content, to=to)
        return value if into is None or to is not None else into(value)

    def events(unread: Any) -> Any:
        stream = decoded(request, unread)
        return stream if into is None else into(stream)

    return parse, events if request.stream else None


def _decoded_async(request: Request, body: AsyncStream[bytes]) -> AsyncStream[Any]:
    """Return the events of a body as it comes."""

    async def batches() -> AsyncGenerator[list[Any], None]:
        decoder, read = Decoder(), Chunks(body.dialect, request)
        try:
            async for piece in body:
                if chunks := read.of(decoder.feed(piece)):
                    yield chunks
            if chunks := read.of(decoder.flush()):
                yield chunks
        finally:
            await body.close()

    return AsyncStream(batches(), lambda: body.meta, body.head, body.dialect)


def _decoded_sync(request: Request, body: Stream[bytes]) -> Stream[Any]:
    """Return the events of a body as it comes."""
    return Stream(_Decoding(request, body))


class _Decoding:
    """The source of a synchronous stream whose body passes by as bytes."""

    def __init__(self, request: Request, body: Stream[bytes]) -> None:
        self._body = body
        self._decoder = Decoder()
        self._chunks = Chunks(body.dialect, request)
        self._ready: list[Any] = []
        self._ended = False

    def next(self) -> Any:
        while not self._ready:
            if self._ended:
                raise StopIteration
            piece = next(self._body, None)
            self._ended = piece is None
            events = self._decoder.flush() if piece is None else self._decoder.feed(piece)
            self._ready = self._chunks.of(events)[::-1]
        return self._ready.pop()

    def meta(self) -> Any:
        return self._body.meta

    def origin(self) -> AsyncStream[Any]:
        return self._body.origin()

    def close(self) -> None:
        self._body.close()

    def abandon(self) -> None:
        """Nothing to do: the body's own stream sees to itself."""


class _View:
    """A resource whose every method opens a context."""

    def __init__(self, resource: Any, context: Callable[[Callable[[], Any]], Any]) -> None:
        self._resource = resource
        self._context = context

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._resource, name)
        if not callable(found):
            return _View(found, self._context)  # a resource within it

        @functools.wraps(found)
        def opens(*args: Any, **kwargs: Any) -> Any:
            return self._context(functools.partial(found, *args, **kwargs))

        return opens


class _AsyncContext:
    """``async with …with_streaming_response.create(…) as response``."""

    def __init__(self, send: Callable[[], Awaitable[AsyncStreamedResponse]]) -> None:
        self._send = send

    async def __aenter__(self) -> AsyncStreamedResponse:
        self._response = await self._send()
        return self._response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.close()


class _SyncContext:
    """``with …with_streaming_response.create(…) as response``."""

    def __init__(self, send: Callable[[], StreamedResponse]) -> None:
        self._send = send

    def __enter__(self) -> StreamedResponse:
        self._response = self._send()
        return self._response

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()
