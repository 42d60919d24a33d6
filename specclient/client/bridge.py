"""Runs coroutines and streams for the synchronous client, on the event loop of all synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

from specclient.call.stream import AsyncStream, Stream
from specclient.client.background_loop import background
from specclient.client.loop_tasks import LoopCall, LoopTask
from specclient.errors import APIConnectionError
from specclient.runtime.event_loop import cancel_shield
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import Call

T = TypeVar("T")
P = ParamSpec("P")

#: Chunks that wait for a slow reader before the stream stops reading from the network.
HIGH_WATER = 512
#: Seconds that closing a stream waits until its call is recorded.
CLOSE_S = 10.0


class Bridge:
    """Runs coroutine functions on the shared loop; see :class:`specclient.resources.base.SyncRunner`."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function and return its result; an interrupt cancels the call."""
        call = LoopCall(partial(function, *args, **kwargs))
        try:
            return background.run(call)
        except BaseException:
            background.park()
            raise

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Open a stream on the background loop; return when its response has begun."""
        pump = _StreamPump(lambda: function(*args, **kwargs))
        pump.open()
        return Stream(pump)


class _StreamEnd:
    """The last item of a pump's queue, with the error that ended the stream, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _weight(batch: list[Any]) -> int:
    """Return the size of a batch in units of ``HIGH_WATER``: chunks, or about 2 KiB of raw bytes."""
    if batch and isinstance(batch[0], bytes):
        return sum(1 + len(piece) // 2048 for piece in batch)
    return len(batch)


class _StreamPump(Generic[T]):
    """Runs one stream in a task on the background loop, and hands its chunks to another thread.

    One task runs the stream from opening to end, because cancel scopes and context variables of the
    generator are bound to the task that steps it. The task may be ``HIGH_WATER`` chunks ahead of the reader,
    which grants more as it reads. Only the loop's thread changes the count, so no grant is lost.
    """

    def __init__(self, open_stream: Callable[[], Awaitable[AsyncStream[T]]]) -> None:
        self._open_stream = open_stream
        self._queue: SimpleQueue[list[T] | _StreamEnd] = SimpleQueue()
        self._ready: deque[T] = deque()
        self._ended = threading.Event()
        self._read = 0
        self._keeps_captured = False
        self._credit = HIGH_WATER
        self._task: LoopTask | None = None
        register_fork_reset(self)

    def open(self) -> None:
        """Start the stream, and return when its response has begun.

        Raises:
            OpenAIError: the request failed.
        """
        self._task = LoopTask(self._pump)
        background.start(self._task)
        try:
            begun = self._queue.get()
        except BaseException:  # an interrupt
            self.cancel_nowait()
            raise
        if isinstance(begun, _StreamEnd):
            background.park()
            error = begun.error
            assert error is not None  # nothing else ends a stream that has not begun
            try:
                raise error
            finally:
                del begun, error  # as in `LoopCall.result`

    async def _pump(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._granted = asyncio.Event()
        end = _StreamEnd()
        try:
            stream = self._stream = await self._open_stream()
        except BaseException as error:
            self._queue.put(_StreamEnd(error))
            if isinstance(error, Exception):
                return
            raise
        finally:
            del self._open_stream
        if hasattr(stream.http, "captured"):  # for a caller who reads the response itself
            stream.http.captured = deque()
        self._queue.put([])  # the response has begun
        try:
            await self._hand_over(stream)
        except Exception as error:  # noqa: BLE001 - carried across and raised in the reader
            end.error = error
        finally:
            with cancel_shield():
                await stream.close()
            self._queue.put(end)  # after the call is recorded: the reader may use `meta` at the end
            self._ended.set()
            del end

    async def _hand_over(self, stream: AsyncStream[T]) -> None:
        while True:
            try:
                batch = await stream.next_batch()
            except StopAsyncIteration:
                return
            self._queue.put(batch)
            self._credit -= _weight(batch)
            while self._credit <= 0:
                self._granted.clear()
                await self._granted.wait()

    def _grant(self, chunks: int) -> None:
        self._credit += chunks
        self._granted.set()

    def next(self) -> T:
        while not self._ready:
            try:
                item = self._queue.get()
            except BaseException:  # an interrupt: no reader waits for the chunks any more
                self.cancel_nowait()
                raise
            if isinstance(item, _StreamEnd):
                background.park()
                self._queue.put(_StreamEnd())  # for other readers, and for later reads
                error = item.error
                try:
                    raise StopIteration if error is None else error
                finally:
                    del item, error  # as in `LoopCall.result`
            self._ready.extend(item)
            if not self._keeps_captured and hasattr(self._stream.http, "captured"):
                self._stream.http.captured = None
            self._read += _weight(item)
            if self._read >= HIGH_WATER // 2:
                read, self._read = self._read, 0
                with suppress(RuntimeError):  # the loop has ended, and so has the stream
                    self._loop.call_soon_threadsafe(self._grant, read)
        return self._ready.popleft()

    def meta(self) -> Call:
        return self._stream.meta

    def async_stream(self) -> AsyncStream[T]:
        return self._stream

    def keep_captured(self) -> None:
        self._keeps_captured = True

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._ended.wait(CLOSE_S)
        self._ready.clear()
        while not self._queue.empty():  # drop the unread chunks
            self._queue.get()
        self._queue.put(_StreamEnd())

    def cancel_nowait(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def reset_after_fork(self) -> None:
        """End the stream in a forked child, because the connection belongs to the parent."""
        self._task = None
        self._ready.clear()
        self._queue = SimpleQueue()
        self._queue.put(
            _StreamEnd(
                APIConnectionError(
                    message="Connection error. This stream was opened before the process forked and "
                    "continues in the parent only; open a new one in the child."
                )
            )
        )
