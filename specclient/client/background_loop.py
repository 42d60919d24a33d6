"""The background thread with the event loop of all synchronous clients, and the calls that run on it.

The thread is a daemon, so that it does not delay the interpreter's exit. A forked child starts its own.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from specclient.errors import SpecClientError
from specclient.runtime.exit_order import end_calls_at_exit
from specclient.runtime.forks import register_fork_reset

T = TypeVar("T")


class _LoopThread(threading.Thread):
    """A thread that runs an event loop until :meth:`stop`, which cancels the remaining tasks."""

    def __init__(self) -> None:
        super().__init__(name="specclient", daemon=True)
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._stop_requested = asyncio.Event()

    def run(self) -> None:
        # RuntimeError: at the interpreter's exit, asyncio cannot start the thread that joins its executor's
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


class LoopTask:
    """Work on the background loop, started by another thread.

    Args:
        work: a coroutine function with its arguments.
    """

    def __init__(self, work: Callable[[], Awaitable[Any]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the work."""
        self._loop = loop
        loop.call_soon_threadsafe(self._start)

    def cancel(self) -> None:
        """Cancel the work, from any thread. No effect if it has ended."""
        with suppress(RuntimeError):  # the loop has ended, and so has the work
            self._loop.call_soon_threadsafe(self._cancel)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._work()


class LoopCall(LoopTask, Generic[T]):
    """A call of a coroutine function on the background loop, for whose result another thread waits.

    ``asyncio.run_coroutine_threadsafe`` needs one more turn of the loop, which passes the result from the
    task to another future, and a condition variable. Here the task itself hands over the result.
    """

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        super().__init__(function)
        self._outcome: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    def result(self) -> T:
        """Wait for the end of the call; return its result, or raise its error. An interrupt cancels the call.

        Raises:
            concurrent.futures.CancelledError: the call was cancelled.
        """
        try:
            outcome = self._outcome.get()
        except BaseException:  # an interrupt
            self.cancel()
            raise
        try:
            if isinstance(outcome, tuple):
                return outcome[0]
            raise CancelledError if isinstance(outcome, asyncio.CancelledError) else outcome
        finally:
            del outcome  # a reference cycle: its traceback refers to this frame

    async def _run(self) -> None:
        try:
            result = await self._work()
        except BaseException as error:
            self._outcome.put(error)
            if not isinstance(error, Exception):
                raise
        else:
            self._outcome.put((result,))


class BackgroundLoop:
    """The process's loop thread: started by the first call, stopped at exit, replaced after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._abandoned: list[_LoopThread] = []
        self._leaving = False
        register_fork_reset(self)
        end_calls_at_exit(self.stop)

    def start(self, task: LoopTask) -> None:
        """Start a task on the loop, with the caller's context variables.

        Raises:
            SpecClientError: the call comes from the loop's own thread, which would wait for itself; or from a
                finalizer late in the interpreter's exit, when no thread runs any more.
        """
        self.park()
        thread = self._running()
        if thread is None:
            raise SpecClientError("the interpreter is shutting down, so no call can be made")
        if thread.ident == threading.get_ident():
            raise SpecClientError(
                "a synchronous client was called from the background thread that serves all synchronous "
                "clients (by a hook, a key function or a finalizer), which would wait for itself; use "
                "AsyncOpenAI there"
            )
        task.start(thread.loop)

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
        """Forget the loop thread, which runs in the parent only; keep its objects, so that none is closed."""
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

background = BackgroundLoop()


def flush_at_exit(flushable: SupportsFlush) -> None:
    """Flush an object after the loop has ended, so that calls cancelled by the exit are recorded, too."""
    _flushed_at_exit.add(flushable)
