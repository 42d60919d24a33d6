"""Threads that use a store for event loops, at less cost than a thread pool's futures.

Looking an answer up takes ten microseconds; handing the work to a thread and the result back takes longer: a
hundred with the futures of a pool, thirty as here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

__all__ = ["StoreThreads"]

T = TypeVar("T")

#: Seconds without work after which a thread ends.
IDLE_S = 30.0


class _Task(NamedTuple):
    """Work for a thread, and the future of the event loop that waits for it; None if none does."""

    work: Callable[[], Any]
    waiter: asyncio.Future[Any] | None


class StoreThreads:
    """Runs work in up to ``most`` daemon threads, which are started as they are needed.

    Args:
        on_idle: called when the last thread ends because there was no work for :data:`IDLE_S`.

    Attributes:
        most: the number of threads; may be raised at any time.
    """

    def __init__(self, on_idle: Callable[[], object]) -> None:
        self.most = 1
        self._on_idle = on_idle
        self._lock = threading.Lock()  # guards the fields below
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._open = 0  # tasks that have not ended
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Return the result of ``work`` for the running event loop.

        Raises:
            RuntimeError: no thread can be started, as at the interpreter's exit.
        """
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(_Task(work, waiter))
        return waiter

    def begin(self, work: Callable[[], object]) -> None:
        """Run ``work`` without a result; an exception is dropped, and so is the work at the exit."""
        with suppress(RuntimeError):
            self._add(_Task(work, None))

    def close(self) -> None:
        """Wait until all work is done and the threads have ended; later work starts them again."""
        with self._lock:
            threads, self._threads = self._threads, []
            for _ in threads:
                self._tasks.put(None)
            self._tasks, self._open = SimpleQueue(), 0
        for thread in threads:
            thread.join()

    def _add(self, task: _Task) -> None:
        with self._lock:
            self._open += 1
            if self._open > len(self._threads) < self.most:
                self._start()
            self._tasks.put(task)

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._serve, args=(self._tasks,), name="specclient-cache", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self._open -= 1
            if not self._threads:
                raise
            self._open += 1
            return
        self._threads.append(thread)

    def _serve(self, tasks: SimpleQueue[_Task | None]) -> None:
        while (task := self._next(tasks)) is not None:
            work, waiter = task
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                failure = error
            self._open -= 1  # without the lock: a thread too many or too few for a moment does no harm
            if waiter is not None:
                with suppress(RuntimeError):  # the event loop has been closed
                    waiter.get_loop().call_soon_threadsafe(_settle, waiter, result, failure)
            del task, work, waiter, result, failure

    def _next(self, tasks: SimpleQueue[_Task | None]) -> _Task | None:
        """Wait for the next task; None if the thread must end."""
        while True:
            try:
                return tasks.get(timeout=IDLE_S)
            except Empty:
                with self._lock:  # no task is added meanwhile
                    if tasks is not self._tasks:
                        return None
                    if tasks.empty():
                        self._threads.remove(threading.current_thread())
                        if not self._threads:
                            self._on_idle()
                        return None


def _settle(waiter: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(failure)
