"""Event streams: iterators of events made from the chunks of a stream, and their context managers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from specclient.call.stream import AsyncStream, Stream
from specclient.types.call import Call

E = TypeVar("E")
S = TypeVar("S", bound="EventStream[Any]")
A = TypeVar("A", bound="AsyncEventStream[Any]")
AsyncRequest = Awaitable[AsyncStream[Any]] | Callable[[], Awaitable[AsyncStream[Any]]]


class _RawStreamProperties:
    """Properties of the underlying stream, common to synchronous and asynchronous event streams."""

    _raw_stream: Any

    @property
    def meta(self) -> Call:
        """The record of the call. It is complete when the stream has ended."""
        meta: Call = self._raw_stream.meta
        return meta

    @property
    def response(self) -> Any:
        """The HTTP library's response; None for a call without HTTP."""
        return self._raw_stream.response


class EventStream(_RawStreamProperties, Generic[E]):
    """A stream of events made from chunks: ``for event in stream``.

    Args:
        raw_stream: the stream of chunks.
        handle: returns the events of a chunk.
    """

    def __init__(self, raw_stream: Stream[Any], handle: Callable[[Any], list[E]]) -> None:
        self._raw_stream = raw_stream
        self._events = self._read(handle)

    def _read(self, handle: Callable[[Any], list[E]]) -> Generator[E]:
        for chunk in self._raw_stream:
            yield from handle(chunk)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E:
        return next(self._events)

    def until_done(self) -> Self:
        """Read all remaining events, and return the stream."""
        for _ in self:
            pass
        return self

    def close(self) -> None:
        """Close the stream and release its connection. May be called more than once."""
        self._raw_stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncEventStream(_RawStreamProperties, Generic[E]):
    """A stream of events made from chunks: ``async for event in stream``. See :class:`EventStream`."""

    def __init__(self, raw_stream: AsyncStream[Any], handle: Callable[[Any], list[E]]) -> None:
        self._raw_stream = raw_stream
        self._events = self._read(handle)

    async def _read(self, handle: Callable[[Any], list[E]]) -> AsyncGenerator[E, None]:
        async for chunk in self._raw_stream:
            for event in handle(chunk):
                yield event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        return await anext(self._events)

    async def until_done(self) -> Self:
        """Read all remaining events, and return the stream."""
        async for _ in self:
            pass
        return self

    async def close(self) -> None:
        """Close the stream and release its connection. May be called more than once."""
        await self._raw_stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class StreamManager(Generic[S]):
    """Context manager that sends a request on entry and closes its stream on exit.

    Args:
        request: sends the request and returns its stream.
        wrap: creates the event stream from its argument ``raw_stream``.
    """

    def __init__(self, request: Callable[[], Stream[Any]], wrap: Callable[..., S]) -> None:
        self._request = request
        self._wrap = wrap
        self._stream: S | None = None

    def __enter__(self) -> S:
        self._stream = self._wrap(raw_stream=self._request())
        return self._stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()


class AsyncStreamManager(Generic[A]):
    """Asynchronous context manager that sends a request on entry and closes its stream on exit.

    Args:
        request: an awaitable that sends the request, or a function that returns one. With a function, no
            awaitable is created (and never awaited) if the block is not entered.
        wrap: see :class:`StreamManager`.
    """

    def __init__(self, request: AsyncRequest, wrap: Callable[..., A]) -> None:
        self._request = request
        self._wrap = wrap
        self._stream: A | None = None

    async def __aenter__(self) -> A:
        request = self._request() if callable(self._request) else self._request
        self._stream = self._wrap(raw_stream=await request)
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.close()
