"""Hedged attempts: a second attempt that starts when the first is slow, and the quota that limits them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from specclient.call.stream import AsyncStream
from specclient.runtime.forks import register_fork_reset
from specclient.types.request import Request

T = TypeVar("T")

#: Batches of a stream that are buffered for its reader.
_MAX_BUFFERED = 8
#: Distinct shares whose quotas are counted.
_MAX_SHARES = 64
#: Unused hedges that accumulate.
_MAX_SAVED = 3.0


class HedgeQuota:
    """Limits hedges to a share of all calls: each call earns that share of a hedge, each hedge spends one.

    Of any n consecutive calls, at most ``share * n`` plus :data:`_MAX_SAVED` are hedged, however fast they
    come.
    """

    def __init__(self) -> None:
        self._earned: dict[float, float] = {}
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may have held."""
        self._lock = threading.Lock()

    def earn(self, share: float) -> None:
        """Count one call whose policy allows this share of hedges."""
        with self._lock:
            if len(self._earned) >= _MAX_SHARES and share not in self._earned:
                self._earned.clear()
            earned = self._earned.get(share, 0.0) + share
            self._earned[share] = min(earned, _MAX_SAVED)

    def spend(self, share: float) -> bool:
        """Return whether a call may be hedged now; if so, count the hedge."""
        with self._lock:
            if self._earned.get(share, 0.0) < 1.0 - 1e-9:  # rounding in the sum of many small shares
                return False
            self._earned[share] -= 1.0
            return True


def has_side_effects(request: Request) -> bool:
    """Return whether the provider stores part of a request, so that it must not be sent twice."""
    params = {**request.params, **request.options.body}
    if request.operation == "response" and params.get("store") is not False:
        return True  # responses are stored by default
    return bool(params.get("store") or params.get("background")) or bool(request.method.files)


class HedgedAttempt(Protocol):
    """An attempt that runs in a task of its own."""

    @property
    def ready(self) -> asyncio.Future[Any]:
        """Done once the attempt has answered or failed."""
        ...

    async def cancel(self) -> None:
        """Cancel the attempt, and wait until its record is closed."""
        ...


class HedgedAnswer(Generic[T]):
    """An attempt that is ready once the complete answer has arrived."""

    def __init__(self, work: Awaitable[T]) -> None:
        async def run() -> T:
            return await work

        self.ready: asyncio.Task[T] = asyncio.create_task(run())

    async def cancel(self) -> None:
        """Cancel the attempt, and wait until its record is closed."""
        await _cancel_and_wait(self.ready)


class HedgedStream:
    """A stream that is ready once some of its answer has arrived.

    It is read in a task of its own: a stream must be read in the task that opened it, and in a race two
    streams are opened at the same time.

    Args:
        open_stream: opens the stream.
        with_deadline: awaits one read within the call's deadline.
        has_output: returns whether a batch holds some of the answer.

    Attributes:
        buffered: the batches that were read before ``ready``.
    """

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[AsyncStream[Any]]],
        with_deadline: Callable[[Awaitable[list[Any]]], Awaitable[list[Any]]],
        has_output: Callable[[list[Any]], bool],
    ) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.buffered: list[list[Any]] = []
        self._queue: asyncio.Queue[list[Any] | None] = asyncio.Queue(_MAX_BUFFERED)
        self._failure: BaseException | None = None
        self._stream: AsyncStream[Any] | None = None
        self._task = asyncio.create_task(self._run(open_stream, with_deadline, has_output))

    @property
    def stream(self) -> AsyncStream[Any]:
        """The stream; only after it has been opened."""
        assert self._stream is not None
        return self._stream

    async def _run(
        self,
        open_stream: Callable[[], Awaitable[AsyncStream[Any]]],
        with_deadline: Callable[[Awaitable[list[Any]]], Awaitable[list[Any]]],
        has_output: Callable[[list[Any]], bool],
    ) -> None:
        try:
            self._stream = stream = await open_stream()
            async with stream:
                with suppress(StopAsyncIteration):
                    while not self.ready.done():
                        self.buffered.append(batch := await with_deadline(stream.next_batch()))
                        if has_output(batch):
                            self.ready.set_result(None)
                    while True:
                        await self._queue.put(await with_deadline(stream.next_batch()))
        except Exception as error:  # noqa: BLE001 - raised in the reader
            if not self.ready.done():
                self.ready.set_exception(error)
                return
            self._failure = error
        if not self.ready.done():
            self.ready.set_result(None)  # an empty answer is an answer
        await self._queue.put(None)

    async def next_batch(self) -> list[Any]:
        """Return the next chunks that arrived together.

        Raises:
            StopAsyncIteration: at the end of the stream.
            Exception: the error that broke the stream.
        """
        batch = await self._queue.get()
        if batch is not None:
            return batch
        failure, self._failure = self._failure, None
        try:
            raise StopAsyncIteration if failure is None else failure
        finally:
            del failure  # its traceback's frame holds it: a reference cycle

    async def close(self) -> None:
        """Close the stream, and wait until its record is closed."""
        await _cancel_and_wait(self._task)
        if self.ready.done() and not self.ready.cancelled():
            self.ready.exception()  # marks it as retrieved, so that asyncio does not log it
        else:
            self.ready.cancel()

    cancel = close


R = TypeVar("R", bound=HedgedAttempt)


async def race(first: R, start_second: Callable[[], R | None], delay_s: float) -> Sequence[R]:
    """Wait for the first success of two attempts, and cancel the other.

    Args:
        first: the attempt that is running.
        start_second: starts the second attempt; returns None where it may not be started.
        delay_s: seconds before the second attempt is started.

    Returns:
        The attempt that succeeded; if none did, all that were started.
    """
    running = [first]
    winner: R | None = None
    try:
        await asyncio.wait([first.ready], timeout=delay_s)
        if not first.ready.done() and (second := start_second()) is not None:
            running.append(second)
        waiting = [each.ready for each in running]
        while winner is None and waiting:
            done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            waiting = list(rest)
            winner = next((each for each in running if each.ready in done and _succeeded(each)), None)
        return running if winner is None else [winner]
    finally:
        losers = [each.cancel() for each in running if each is not winner]
        if losers:
            await asyncio.gather(*losers)


def _succeeded(attempt: HedgedAttempt) -> bool:
    return not attempt.ready.cancelled() and attempt.ready.exception() is None


async def _cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended even if the caller is cancelled meanwhile."""
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()  # marks it as retrieved, so that asyncio does not log it
    if cancelled:
        raise asyncio.CancelledError
