"""Turn a running answer into what the caller iterates over: chunks, then the record of the call."""

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
        batches: what came, in order: one list for each read from the network, so that the chunks of one
            read cost no switch of tasks.
        meta: returns the record of the call.
        http: has the HTTP library's response as ``response``; None where no HTTP was spoken.
        dialect: how the endpoint's answers are read; None where they have been.
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
        self._left: asyncio.Event | None = None
        self._closing = asyncio.Lock()

    @property
    def response(self) -> Any:
        """The HTTP library's response; None where no HTTP was spoken."""
        return getattr(self.http, "response", None)

    @property
    def meta(self) -> Call:
        """The record of the call; complete once the stream has ended, ``status`` says whether it has."""
        return self._meta()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            self._ready.extend(await self.next_batch())
        return self._ready.popleft()

    async def next_batch(self) -> list[T]:
        """Wait for the next chunks that came together; raises ``StopAsyncIteration`` at the end."""
        self._reader = reader = asyncio.current_task()
        assert reader is not None
        before = reader.cancelling()
        try:
            return await self._batches.__anext__()
        except asyncio.CancelledError:
            # It may have been close(), in another task; whoever else cancels the task is obeyed.
            if self._left is None or reader.uncancel() > before:
                raise
            raise StopAsyncIteration from None
        finally:
            self._reader = None
            del reader  # it may keep the error that passes here, whose traceback holds this frame: a circle
            if self._left is not None:
                self._left.set()

    async def close(self) -> None:
        """End the stream; safe to call twice, and from another task than the one that reads."""
        async with self._closing:
            if self._reader is not None:
                self._left = asyncio.Event()
                self._reader.cancel()
                await self._left.wait()
            self._ready.clear()
            await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncStreamSource(Protocol[T_co]):
    """Where a synchronous stream takes its chunks from: something that runs in the event loop's thread."""

    def next(self) -> T_co:
        """Wait for the next chunk; raises ``StopIteration`` at the end, or what ended the stream."""
        ...

    def meta(self) -> Call:
        """Return the record of the call."""
        ...

    def async_stream(self) -> AsyncStream[Any]:
        """Return the stream that the chunks come from."""
        ...

    def close(self) -> None:
        """Cancel what still runs and wait for it to end."""
        ...

    def cancel_nowait(self) -> None:
        """Cancel what still runs, without waiting."""
        ...


class Stream(Generic[T]):
    """A streamed answer: ``for chunk in stream``. Leaving early works as for :class:`AsyncStream`."""

    def __init__(self, source: SyncStreamSource[T]) -> None:
        self._source = source

    @property
    def meta(self) -> Call:
        """The record of the call; complete once the stream has ended, ``status`` says whether it has."""
        return self._source.meta()

    @property
    def response(self) -> Any:
        """The HTTP library's response; None where no HTTP was spoken."""
        return self._source.async_stream().response

    @property
    def dialect(self) -> Any:
        """How the endpoint's answers are read; None where they have been."""
        return self._source.async_stream().dialect

    def async_stream(self) -> AsyncStream[Any]:
        """Return the asynchronous stream that the chunks come from."""
        return self._source.async_stream()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._source.next()

    def close(self) -> None:
        """End the stream; safe to call twice."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._source.cancel_nowait()
