"""Runs coroutines for the synchronous client, on one event loop per process in a background thread.

The thread is a daemon, so that it does not delay the interpreter's exit. A forked child starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from specclient.call.stream import AsyncStream, Stream
from specclient.errors import APIConnectionError, SpecClientError
from specclient.runtime.event_loop import cancel_shield
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import Call

T = TypeVar("T")
P = ParamSpec("P")

#: Chunks that wait for a slow reader before the stream stops reading from the network.
HIGH_WATER = 512
#: Seconds that closing a stream waits until its call is recorded.
CLOSE_S = 10.0


class _LoopThread(threading.Thread):
    """A thread that runs an event loop until :meth:`stop`, which cancels the remaining tasks."""

    def __init__(self) -> None:
        super().__init__(name="specclient", daemon=True)
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._stop_requested = asyncio.Event()

    def run(self) -> None:
        # RuntimeError: at the interpreter's exit, no thread can be started to join the resolver's
        with suppress(RuntimeError), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stop())

    async def _until_stop(self) -> None:
        await self._stop_requested.wait()

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            self.loop.call_soon_threadsafe(self._stop_requested.set)
        self.join()

    def sever(self) -> None:
        """In a forked child: release the parent's sockets, so that they close when the parent closes them.

        The file descriptors are replaced by ``/dev/null``, not closed, because the objects that own them stay
        alive as long as the child.
        """
        descriptors = [key.fd for key in list((self._selector.get_map() or {}).values())]
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (*descriptors, self._selector.fileno()):
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)


class _BackgroundLoop:
    """The process's loop thread: started by the first call, stopped at exit, replaced after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._abandoned: list[_LoopThread] = []
        self._leaving = False
        register_fork_reset(self)
        atexit.register(self.stop)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, with the caller's context variables.

        Raises:
            SpecClientError: the call comes from the loop's own thread, which would wait for itself; or from a
                finalizer late in the interpreter's exit, when no thread runs any more.
        """
        self.park()
        thread = self._running()
        if thread is None:
            coroutine.close()
            raise SpecClientError("the interpreter is shutting down, so no call can be made")
        if thread.ident == threading.get_ident():
            coroutine.close()
            raise SpecClientError(
                "a synchronous client was called from the background thread that serves all synchronous "
                "clients (by a hook, a key function or a finalizer), which would wait for itself; use "
                "AsyncOpenAI there"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, thread.loop)

    def _running(self) -> _LoopThread | None:
        if sys.is_finalizing():
            return None
        thread = self._thread
        if thread is None or thread.loop.is_closed():
            with self._lock:
                thread = self._thread
                if thread is None or thread.loop.is_closed():
                    thread = _LoopThread()
                    try:
                        thread.start()
                    except RuntimeError:  # since Python 3.12, exit handlers cannot start threads
                        thread.loop.close()
                        return None
                    self._thread = thread
        return thread

    def stop(self) -> None:
        """Cancel the running calls, wait for them to end, and flush the ledgers."""
        self._leaving = True
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        for flushable in list(_flushed_at_exit):
            flushable.flush()

    def park(self) -> None:
        """At the interpreter's exit, block a daemon thread forever; the exit ends it soon.

        Its call was cancelled. If the thread resumed, it would print an error or make another call.
        """
        if self._leaving and threading.current_thread().daemon:
            threading.Event().wait()

    def reset_after_fork(self) -> None:
        """Forget the loop thread, which runs in the parent only, and keep its objects from being closed."""
        self._lock = threading.Lock()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._abandoned.append(thread)
            thread.sever()


class SupportsFlush(Protocol):
    """An object with pending writes."""

    def flush(self) -> None:
        """Finish the pending writes."""
        ...


_flushed_at_exit: weakref.WeakSet[SupportsFlush] = weakref.WeakSet()

_loop = _BackgroundLoop()


def flush_at_exit(flushable: SupportsFlush) -> None:
    """Flush an object after the loop has ended, so that calls cancelled by the exit are recorded, too."""
    _flushed_at_exit.add(flushable)


class Bridge:
    """Runs coroutine functions on the background loop; see :class:`specclient.resources.base.SyncRunner`."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function and return its result; an interrupt cancels the call."""

        async def called() -> T:
            return await function(*args, **kwargs)

        future = _loop.submit(called())
        try:
            return future.result()
        except BaseException:
            _loop.park()
            future.cancel()
            raise
        finally:
            del future  # a reference cycle: its error's traceback refers to this frame

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
        self._task: Future[None] | None = None
        register_fork_reset(self)

    def open(self) -> None:
        """Start the stream, and return when its response has begun.

        Raises:
            OpenAIError: the request failed.
        """
        opened: Future[AsyncStream[T]] = Future()
        self._task = _loop.submit(self._pump(opened))
        try:
            self._stream = opened.result()
        except BaseException:
            _loop.park()
            self.cancel_nowait()
            raise
        finally:
            del opened  # as in `Bridge.run`

    async def _pump(self, opened: Future[AsyncStream[T]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._granted = asyncio.Event()
        end = _StreamEnd()
        try:
            stream = await self._open_stream()
        except BaseException as error:
            opened.set_exception(error)
            del opened
            if isinstance(error, Exception):
                return
            raise
        finally:
            del self._open_stream
        if hasattr(stream.http, "captured"):  # for a caller who reads the response itself
            stream.http.captured = deque()
        opened.set_result(stream)
        del opened
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
                _loop.park()
                self._queue.put(_StreamEnd())  # for other readers, and for later reads
                error = item.error
                try:
                    raise StopIteration if error is None else error
                finally:
                    del item, error  # as in `Bridge.run`
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
