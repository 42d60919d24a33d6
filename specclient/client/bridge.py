"""Turn coroutines into calls that wait: all of a process on one event loop, in a thread in the background.

The thread is a daemon, so it never keeps the interpreter from exiting, and it is made anew in a child
after ``fork``.
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

#: Chunks that may wait for a slow reader before the stream stops reading from the network.
HIGH_WATER = 512
#: Seconds that closing a stream waits for its end to be recorded.
CLOSE_S = 10.0


class _LoopThread(threading.Thread):
    """A thread with an event loop, until it is told to stop; what then still runs is cancelled."""

    def __init__(self) -> None:
        super().__init__(name="specclient", daemon=True)
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._told = asyncio.Event()

    def run(self) -> None:
        # RuntimeError: no thread starts any more to wait for the resolver's; the interpreter is leaving
        with suppress(RuntimeError), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_told())

    async def _until_told(self) -> None:
        await self._told.wait()

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended already
            self.loop.call_soon_threadsafe(self._told.set)
        self.join()

    def sever(self) -> None:
        """In a forked child: let go of the parent's sockets, so that they close when the parent closes them.

        The files are replaced and not closed: the objects that own them live on, as long as the child.
        """
        numbers = [key.fd for key in list((self._selector.get_map() or {}).values())]
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (*numbers, self._selector.fileno()):
            os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


class _BackgroundLoop:
    """The process's loop thread: started by the first call, stopped at exit, made anew after a fork."""

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
            SpecClientError: in the loop's own thread, which would wait for itself; and in the last steps of
                the interpreter's exit, in which no thread runs any more (finalizers of what is left).
        """
        self.park()
        thread = self._running()
        if thread is None:
            coroutine.close()
            raise SpecClientError("the interpreter is shutting down, and runs no call any more")
        if thread.ident == threading.get_ident():
            coroutine.close()
            raise SpecClientError(
                "a synchronous client was called in the thread that serves all of them (from a hook, a key "
                "function or a finalizer), and would wait for itself; use AsyncOpenAI there"
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
                    except RuntimeError:  # from Python 3.12 on, no thread starts in handlers of the exit
                        thread.loop.close()
                        return None
                    self._thread = thread
        return thread

    def stop(self) -> None:
        """Cancel what still runs, wait for it to end, and write what it leaves for the ledgers."""
        self._leaving = True
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        for thing in list(_flushed):
            thing.flush()

    def park(self) -> None:
        """Keep a daemon thread where it is once the interpreter is leaving, which soon ends it.

        What it waited for has been cancelled. It is not to hear of that, or it would print an error, or call
        again: the exit cuts daemon threads short, whatever they wait for.
        """
        if self._leaving and threading.current_thread().daemon:
            threading.Event().wait()

    def reset_after_fork(self) -> None:
        """In a forked child: the thread stayed with the parent. What is left of it must not close."""
        self._lock = threading.Lock()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._abandoned.append(thread)
            thread.sever()


class SupportsFlush(Protocol):
    """What has something to write once the loop has ended."""

    def flush(self) -> None:
        """Write it."""
        ...


_flushed: weakref.WeakSet[SupportsFlush] = weakref.WeakSet()

_loop = _BackgroundLoop()


def flush_at_exit(thing: SupportsFlush) -> None:
    """Have a thing flushed after the loop has ended: a stream that is cut short then leaves a row."""
    _flushed.add(thing)


class Bridge:
    """Runs coroutine functions on the background loop; see :class:`specclient.resources.base.SyncRunner`."""

    def run(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, wait, and return the result; an interrupt cancels the call."""

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
            del future  # it holds the error whose traceback holds this frame: a circle

    def stream(
        self, function: Callable[P, Awaitable[AsyncStream[T]]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]:
        """Open a stream on the background loop and return once it is open."""
        pump = _StreamPump(lambda: function(*args, **kwargs))
        pump.open()
        return Stream(pump)


class _StreamEnd:
    """Closes a pump's queue; carries what ended the stream, if it was an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _weight(batch: list[Any]) -> int:
    """Return what a batch counts towards ``HIGH_WATER``: its chunks; of a body's pieces, their kilobytes."""
    if batch and isinstance(batch[0], bytes):
        return sum(1 + len(piece) // 2048 for piece in batch)
    return len(batch)


class _StreamPump(Generic[T]):
    """Runs one stream from opening to end inside one task, and hands its chunks to another thread.

    One task, because the cancel scopes and context variables of whoever produces the chunks are
    bound to the task that steps them. The task may be ``HIGH_WATER`` chunks ahead of the reader, who
    grants it more as it reads on; only the loop's thread touches the count, so no grant is lost.
    """

    def __init__(self, open_stream: Callable[[], Awaitable[AsyncStream[T]]]) -> None:
        self._open_stream = open_stream
        self._queue: SimpleQueue[list[T] | _StreamEnd] = SimpleQueue()
        self._ready: deque[T] = deque()
        self._ended = threading.Event()
        self._read = 0
        self._room = HIGH_WATER
        self._task: Future[None] | None = None
        register_fork_reset(self)

    def open(self) -> None:
        """Start the stream, and return once its answer has begun.

        Raises:
            OpenAIError: what refused the request.
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
        opened.set_result(stream)
        del opened
        try:
            await self._hand_over(stream)
        except Exception as error:  # noqa: BLE001 - carried across and raised in the reader
            end.error = error
        finally:
            with cancel_shield():
                await stream.close()
            self._queue.put(end)  # after the record is closed: whoever reads the end may read `meta`
            self._ended.set()
            del end

    async def _hand_over(self, stream: AsyncStream[T]) -> None:
        while True:
            try:
                batch = await stream.next_batch()
            except StopAsyncIteration:
                return
            self._queue.put(batch)
            self._room -= _weight(batch)
            while self._room <= 0:
                self._granted.clear()
                await self._granted.wait()

    def _grant(self, chunks: int) -> None:
        self._room += chunks
        self._granted.set()

    def next(self) -> T:
        while not self._ready:
            try:
                item = self._queue.get()
            except BaseException:  # an interrupt: whoever wanted the chunks has stopped waiting for them
                self.cancel_nowait()
                raise
            if isinstance(item, _StreamEnd):
                _loop.park()
                self._queue.put(_StreamEnd())  # for any other reader, and this one if it asks again
                error = item.error
                try:
                    raise StopIteration if error is None else error
                finally:
                    del item, error  # as in `Bridge.run`
            self._ready.extend(item)
            self._read += _weight(item)
            if self._read >= HIGH_WATER // 2:
                read, self._read = self._read, 0
                with suppress(RuntimeError):  # the loop has ended, and the stream with it
                    self._loop.call_soon_threadsafe(self._grant, read)
        return self._ready.popleft()

    def meta(self) -> Call:
        return self._stream.meta

    def async_stream(self) -> AsyncStream[T]:
        return self._stream

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._ended.wait(CLOSE_S)
        self._ready.clear()
        while not self._queue.empty():  # nobody reads on in what was left
            self._queue.get()
        self._queue.put(_StreamEnd())

    def cancel_nowait(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def reset_after_fork(self) -> None:
        """In a forked child: the connection is the parent's, and so is what comes over it."""
        self._task = None
        self._ready.clear()
        self._queue = SimpleQueue()
        self._queue.put(
            _StreamEnd(
                APIConnectionError(
                    message="Connection error. This stream was opened before the process forked, and goes on "
                    "in the parent alone; open one in the child."
                )
            )
        )
