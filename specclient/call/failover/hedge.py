"""Turn two tries of one call into the first good answer: the second sets out where the first is slow."""

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

#: Batches of a stream that may wait for its reader.
_HELD = 8
#: Shares of calls that are counted apart.
_SHARES = 64
#: Hedges that may be saved up.
_SAVED = 3.0


class HedgeQuota:
    """Lets a share of calls be hedged: each call earns its share of a hedge, each hedge spends one.

    So of any n calls in a row at most ``share × n`` and the few that were saved up are hedged, whatever the
    clock says.
    """

    def __init__(self) -> None:
        self._earned: dict[float, float] = {}
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.Lock()

    def earn(self, share: float) -> None:
        """Count a call of those of which this share may be hedged."""
        with self._lock:
            if len(self._earned) >= _SHARES and share not in self._earned:
                self._earned.clear()
            earned = self._earned.get(share, 0.0) + share
            self._earned[share] = min(earned, _SAVED)

    def spend(self, share: float) -> bool:
        """Tell whether one of them may be hedged now, and count it."""
        with self._lock:
            if self._earned.get(share, 0.0) < 1.0 - 1e-9:  # the sum of many small shares
                return False
            self._earned[share] -= 1.0
            return True


def has_side_effects(request: Request) -> bool:
    """Tell whether a provider keeps something of a request, which must then not be sent twice."""
    given = {**request.params, **request.options.body}
    if request.operation == "response" and given.get("store") is not False:
        return True  # responses are stored unless that is refused
    return bool(given.get("store") or given.get("background")) or bool(request.method.files)


class HedgedAttempt(Protocol):
    """A try that runs in a task of its own."""

    @property
    def ready(self) -> asyncio.Future[Any]:
        """Done once it is known whether this try is good: it has answered, or failed."""
        ...

    async def leave(self) -> None:
        """End it, and wait until that has been recorded."""
        ...


class HedgedAnswer(Generic[T]):
    """A try that is good once the whole answer is there."""

    def __init__(self, work: Awaitable[T]) -> None:
        async def run() -> T:
            return await work

        self.ready: asyncio.Task[T] = asyncio.create_task(run())

    async def leave(self) -> None:
        """End it."""
        await _ended(self.ready)


class HedgedStream:
    """A stream that is read in a task of its own, and is good once some of the answer is there.

    A stream has to be read in the task that has opened it, and two that race are opened at once.

    Args:
        opening: opens it.
        within: waits for one step of it, in the time that is left.
        speaks: tells whether some of the answer is in a batch.
    """

    def __init__(
        self,
        opening: Callable[[], Awaitable[AsyncStream[Any]]],
        within: Callable[[Awaitable[list[Any]]], Awaitable[list[Any]]],
        speaks: Callable[[list[Any]], bool],
    ) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held: list[list[Any]] = []
        self._queue: asyncio.Queue[list[Any] | None] = asyncio.Queue(_HELD)
        self._failure: BaseException | None = None
        self._stream: AsyncStream[Any] | None = None
        self._task = asyncio.create_task(self._run(opening, within, speaks))

    @property
    def stream(self) -> AsyncStream[Any]:
        """The stream, once it has been opened."""
        assert self._stream is not None
        return self._stream

    async def _run(
        self,
        opening: Callable[[], Awaitable[AsyncStream[Any]]],
        within: Callable[[Awaitable[list[Any]]], Awaitable[list[Any]]],
        speaks: Callable[[list[Any]], bool],
    ) -> None:
        try:
            self._stream = stream = await opening()
            async with stream:
                with suppress(StopAsyncIteration):
                    while not self.ready.done():
                        self.held.append(batch := await within(stream.next_batch()))
                        if speaks(batch):
                            self.ready.set_result(None)
                    while True:
                        await self._queue.put(await within(stream.next_batch()))
        except Exception as error:  # noqa: BLE001 - raised in the reader
            if not self.ready.done():
                self.ready.set_exception(error)
                return
            self._failure = error
        if not self.ready.done():
            self.ready.set_result(None)  # an answer of nothing is one, too
        await self._queue.put(None)

    async def next_batch(self) -> list[Any]:
        """Wait for the next chunks; raises ``StopAsyncIteration`` at the end, or what broke the stream."""
        batch = await self._queue.get()
        if batch is not None:
            return batch
        failure, self._failure = self._failure, None
        try:
            raise StopAsyncIteration if failure is None else failure
        finally:
            del failure  # its traceback's frame holds it: a circle

    async def close(self) -> None:
        """End it, and wait until that has been recorded."""
        await _ended(self._task)
        if self.ready.done() and not self.ready.cancelled():
            self.ready.exception()  # it has been seen
        else:
            self.ready.cancel()

    leave = close


R = TypeVar("R", bound=HedgedAttempt)


async def race(
    first: R, second: Callable[[], R | None], after_s: float, is_good: Callable[[R], bool]
) -> Sequence[R]:
    """Wait for the first good one of two tries, and end the other.

    Args:
        first: under way.
        second: starts the other one, or None where it may not.
        after_s: how long the first is waited for by itself.
        is_good: tells of one that is ready whether it has answered.

    Returns:
        The one that has answered; or those that were made, where none has.
    """
    running = [first]
    winner: R | None = None
    try:
        await asyncio.wait([first.ready], timeout=after_s)
        if not first.ready.done() and (other := second()) is not None:
            running.append(other)
        waiting = [each.ready for each in running]
        while winner is None and waiting:
            done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            waiting = list(rest)
            winner = next((each for each in running if each.ready in done and is_good(each)), None)
        return running if winner is None else [winner]
    finally:
        left = [each.leave() for each in running if each is not winner]
        if left:
            await asyncio.gather(*left)


async def _ended(task: asyncio.Task[Any]) -> None:
    """End a task, and wait until it has ended, even where the caller is cancelled meanwhile."""
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()  # it has been seen
    if cancelled:
        raise asyncio.CancelledError
