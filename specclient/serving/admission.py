"""Admission control: limits of running and of waiting requests, first in, first out."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from specclient.openai_http.errors import ServingError
from specclient.serving.request_log import RequestEntry

#: Value of ``retry-after`` in seconds for rejected requests.
RETRY_AFTER_S = 1


class AdmissionQueue:
    """Limits concurrent requests.

    Args:
        running: maximum of running requests.
        waiting: maximum of waiting requests; further ones are rejected.
        clock: returns monotonic seconds.

    Attributes:
        waiting: number of waiting requests.
        on_change: called when a request has been admitted.
    """

    def __init__(self, running: int, waiting: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._slots = anyio.Semaphore(running, fast_acquire=True)
        self._max_running, self._max_waiting = running, waiting
        self._clock = clock
        self.waiting = 0
        self.on_change: Callable[[], None] = lambda: None

    @property
    def running(self) -> int:
        """Number of running requests."""
        return self._max_running - self._slots.value

    @property
    def full(self) -> bool:
        """Whether the next request would be rejected."""
        return not self._slots.value and self.waiting >= self._max_waiting

    def acquire_nowait(self, entry: RequestEntry) -> bool:
        """Take a slot if one is free, and return whether one was."""
        if not self._slots.value:
            return False
        self._slots.acquire_nowait()
        entry.waited_s = 0.0
        self.on_change()
        return True

    async def acquire(self, entry: RequestEntry) -> None:
        """Wait for a slot; set the entry's waiting time.

        Raises:
            ServingError: 429, too many requests are waiting.
        """
        if self.full:
            raise ServingError(
                429,
                f"the server is busy: {self._max_running} requests are running and {self.waiting} are "
                f"waiting; try again in {RETRY_AFTER_S} s",
                code="server_busy",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        begun = self._clock()
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        entry.waited_s = self._clock() - begun
        self.on_change()

    def release(self) -> None:
        """Release a slot."""
        self._slots.release()
