"""The calls of all synchronous clients, on one event loop: started by the first call, ended at exit.

The loop's thread is a daemon, so that it does not delay the interpreter's exit. A forked child starts its
own.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from typing import Protocol, TypeVar

from specclient.client.loop_tasks import LoopCall, LoopTask
from specclient.client.shared_loop import SharedLoop
from specclient.errors import SpecClientError
from specclient.runtime.deferred_signals import DeferredSignals
from specclient.runtime.exit_order import end_calls_at_exit
from specclient.runtime.forks import register_fork_reset

T = TypeVar("T")


class BackgroundLoop:
    """The process's loop: started by the first call, stopped at exit, replaced after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: SharedLoop | None = None
        self._abandoned: list[SharedLoop] = []
        self._leaving = False
        register_fork_reset(self)
        end_calls_at_exit(self.stop)

    def start(self, task: LoopTask) -> None:
        """Start a task on the loop, with the caller's context variables.

        Raises:
            SpecClientError: the calling thread runs the loop, and would wait for itself; or the call comes
                from a finalizer late in the interpreter's exit, when no thread runs any more.
        """
        self._usable().submit(task)

    def run(self, call: LoopCall[T]) -> T:
        """Run a call, in this thread if nothing else is on the loop; return its result.

        An exception of a signal handler, such as KeyboardInterrupt, cancels the call.

        Raises:
            SpecClientError: as :meth:`start`.
            concurrent.futures.CancelledError: the call was cancelled.
        """
        thread = self._usable()
        try:
            if _in_event_loop() or not _driven(thread, call):
                thread.submit(call)
        except BaseException:  # an interrupt
            call.cancel()
            raise
        return call.result()

    def _usable(self) -> SharedLoop:
        self.park()
        thread = self._running()
        if thread is None:
            raise SpecClientError("the interpreter is shutting down, so no call can be made")
        if thread.is_driven_here():
            raise SpecClientError(
                "a synchronous client was called on the event loop that serves all synchronous clients (by "
                "a hook, a key function or a finalizer), which would wait for itself; use AsyncOpenAI there"
            )
        return thread

    def _running(self) -> SharedLoop | None:
        if sys.is_finalizing():
            return None
        thread = self._thread
        if thread is None or thread.loop.is_closed():
            with self._lock:
                thread = self._thread
                if thread is None or thread.loop.is_closed():
                    thread = SharedLoop()
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


def _in_event_loop() -> bool:
    """Return whether the calling thread runs an event loop of asyncio or of another library, such as trio.

    asyncio runs one loop in a thread at a time, and anyio would take the other library for the running one.
    """
    if asyncio._get_running_loop() is not None:
        return True
    libraries = sys.modules.get("sniffio")
    return libraries is not None and getattr(libraries.thread_local, "name", None) is not None


def _driven(thread: SharedLoop, call: LoopCall[T]) -> bool:
    """Run a call in this thread; return False, without having started it, if other work is on the loop."""
    with DeferredSignals(thread.interrupt) as signals:
        if not thread.take():
            return False
        thread.drive(call, signals.have_arrived)
        return True


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
