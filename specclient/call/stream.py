"""Streams of chunks that callers iterate over, asynchronous and synchronous."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from specclient.types.call import Call

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AsyncStream(Generic[T]):
    """A streamed answer: ``async for chunk in stream``.

    Leaving early (``break`` and ``close``, or the ``async with`` block) frees the connection at once.

    Args:
        batches: yields lists of chunks. The chunks of one network read are one list, so that they cost no
            task switch each.
        meta: returns the record of the call.
        http: an object whose ``response`` is the HTTP library's response; None where no HTTP was used.
        dialect: the wire format of the chunks where they are still bytes; None where they are decoded.
    """

    def __init__(
        self,
        batches: AsyncGenerator[list[T], None],
        meta: Callable[[], Call],
        http: Any = None,
        dialect: Any = None,
    ) -> None:
        self.http = http
        self.dialect = dialect
        self._batches = batches
        self._ready: deque[T] = deque()
        self._meta = meta
        self._reader: asyncio.Task[object] | None = None
        self._reader_left: asyncio.Event | None = None
        self._close_lock = asyncio.Lock()

    @property
    def response(self) -> Any:
        """The HTTP library's response; None where no HTTP was used."""
        return getattr(self.http, "response", None)

    @property
    def meta(self) -> Call:
        """The record of the call, complete once the stream has ended; until then its status is ``open``."""
        return self._meta()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            self._ready.extend(await self.next_batch())
        return self._ready.popleft()

    async def next_batch(self) -> list[T]:
        """Return the next chunks that arrived together.

        Raises:
            StopAsyncIteration: at the end of the stream.
        """
        self._reader = reader = asyncio.current_task()
        assert reader is not None
        cancels_before = reader.cancelling()
        try:
            return await self._batches.__anext__()
        except asyncio.CancelledError:
            # close() in another task ends the stream by a cancel; any other cancel must take effect.
            if self._reader_left is None or reader.uncancel() > cancels_before:
                raise
            raise StopAsyncIteration from None
        finally:
            self._reader = None
            del reader  # it may keep the error that is raised here, whose traceback holds this frame
            if self._reader_left is not None:
                self._reader_left.set()

    async def close(self) -> None:
        """End the stream; may be called twice, and from another task than the reader's."""
        async with self._close_lock:
            if self._reader is not None:
                self._reader_left = asyncio.Event()
                self._reader.cancel()
                await self._reader_left.wait()
            self._ready.clear()
            await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncStreamSource(Protocol[T_co]):
    """The source of a synchronous stream: a task in the event loop's thread."""

    def next(self) -> T_co:
        """Wait for the next chunk.

        Raises:
            StopIteration: at the end.
            OpenAIError: the error that ended the stream.
        """
        ...

    def meta(self) -> Call:
        """Return the record of the call."""
        ...

    def async_stream(self) -> AsyncStream[Any]:
        """Return the asynchronous stream that is read."""
        ...

    def close(self) -> None:
        """Cancel the task and wait for it to end."""
        ...

    def cancel_nowait(self) -> None:
        """Cancel the task without waiting."""
        ...


class Stream(Generic[T]):
    """A streamed answer: ``for chunk in stream``. Leaving early works as for :class:`AsyncStream`."""

    def __init__(self, source: SyncStreamSource[T]) -> None:
        self._source = source

    @property
    def meta(self) -> Call:
        """The record of the call, complete once the stream has ended; until then its status is ``open``."""
        return self._source.meta()

    @property
    def response(self) -> Any:
        """The HTTP library's response; None where no HTTP was used."""
        return self._source.async_stream().response

    @property
    def dialect(self) -> Any:
        """The wire format of the chunks where they are still bytes; None where they are decoded."""
        return self._source.async_stream().dialect

    def async_stream(self) -> AsyncStream[Any]:
        """Return the asynchronous stream that the chunks come from."""
        return self._source.async_stream()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._source.next()

    def close(self) -> None:
        """End the stream; may be called twice."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._source.cancel_nowait()
