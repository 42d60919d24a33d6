"""Turn a crowd of requests into so many at once and so many waiting, in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from specclient.serving.errors import ServingError
from specclient.serving.request_log import RequestEntry

#: Seconds after which a client that was turned away may try again.
RETRY_AFTER_S = 1


class AdmissionQueue:
    """Lets requests in.

    Args:
        running: most at once.
        waiting: most that wait; one more is refused.
        clock: monotonic seconds.

    Attributes:
        waiting: requests that wait.
        changed: called when one has got its turn.
    """

    def __init__(self, running: int, waiting: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._slots = anyio.Semaphore(running, fast_acquire=True)
        self._most, self._room = running, waiting
        self._clock = clock
        self.waiting = 0
        self.changed: Callable[[], None] = lambda: None

    @property
    def running(self) -> int:
        """Requests that are being worked on."""
        return self._most - self._slots.value

    @property
    def full(self) -> bool:
        """Whether one more request would be refused."""
        return not self._slots.value and self.waiting >= self._room

    def turn(self, entry: RequestEntry) -> AdmissionSlot:
        """Return a context that waits for a turn, and has it.

        Args:
            entry: of the request; told how long it waited.

        Raises (on entry):
            ProblemError: 429, too many wait already.
        """
        return AdmissionSlot(self, entry)

    async def take(self, entry: RequestEntry) -> None:
        """Wait for a turn; see :meth:`turn`."""
        if self.full:
            raise ServingError(
                429,
                f"the server is busy: {self._most} requests are running and {self.waiting} are waiting; "
                f"try again in {RETRY_AFTER_S} s",
                code="server_busy",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        self.waiting += 1
        begun = self._clock()
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        entry.waited_s = self._clock() - begun
        self.changed()

    def give(self) -> None:
        """End a turn that was taken."""
        self._slots.release()


class AdmissionSlot:
    """A context in which a request is worked on."""

    __slots__ = ("_entry", "_turns")

    def __init__(self, turns: AdmissionQueue, entry: RequestEntry) -> None:
        self._turns, self._entry = turns, entry

    async def __aenter__(self) -> None:
        await self._turns.take(self._entry)

    async def __aexit__(self, *_: object) -> None:
        self._turns.give()
