"""Turn a crowd of requests into so many at once and so many waiting, in the order in which they came."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from specclient.serving.problems import ProblemError

#: Seconds after which a client that was turned away may try again.
RETRY_AFTER_S = 1


class Turns:
    """Lets requests in.

    Args:
        running: most at once.
        waiting: most that wait; one more is refused.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._slots = anyio.Semaphore(running, fast_acquire=True)
        self._most, self._room = running, waiting
        self.waiting = 0

    @property
    def running(self) -> int:
        """Requests that are being worked on."""
        return self._most - self._slots.value

    @property
    def full(self) -> bool:
        """Whether one more request would be refused."""
        return not self._slots.value and self.waiting >= self._room

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it.

        Raises:
            ProblemError: 429, too many wait already.
        """
        if self.full:
            raise ProblemError(
                429,
                f"the server is busy: {self._most} requests are running and {self.waiting} are waiting; "
                f"try again in {RETRY_AFTER_S} s",
                code="server_busy",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._slots.release()
