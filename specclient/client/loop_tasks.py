"""Work of synchronous clients on their event loop: tasks, and calls for whose result a thread waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LoopTask:
    """Work on the event loop of the synchronous clients, started by another thread.

    Args:
        work: a coroutine function with its arguments.
    """

    def __init__(self, work: Callable[[], Awaitable[Any]]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[LoopTask], None],
        schedule: Callable[[Callable[[], None]], object],
    ) -> None:
        """Start the work, with the caller's context variables.

        Args:
            loop: the event loop.
            ended: called on the loop when the work has ended.
            schedule: the loop's ``call_soon_threadsafe``, or its ``call_soon`` if this thread will run it.
        """
        self._loop, self._ended = loop, ended
        schedule(self._start)

    def cancel(self) -> None:
        """Cancel the work, from any thread. No effect if it has ended, or was not started."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and so has the work
                self._loop.call_soon_threadsafe(self._cancel)

    def _start(self) -> None:
        # The task's first step comes a turn later. The loop learns before it which connections the servers
        # have closed while nobody ran it.
        assert self._loop is not None
        self._task = self._loop.create_task(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self._ended(self)


class LoopCall(LoopTask, Generic[T]):
    """A call of a coroutine function on the event loop, for whose result another thread waits.

    ``asyncio.run_coroutine_threadsafe`` needs one more turn of the loop, which passes the result from the
    task to another future, and a condition variable. Here the task itself hands over the result.
    """

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        super().__init__(function)
        self._outcome: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`result` returns or raises at once."""
        return not self._outcome.empty()

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
        finally:
            self._ended(self)
