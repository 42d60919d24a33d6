"""An adaptive limit of concurrent requests, with a queue.

Additive increase, multiplicative decrease, as in TCP (RFC 5681): a refusal halves the limit, and a round
without a refusal raises it by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict


class QueueWaiter:
    """A task that waits in a queue. It can be woken from any event loop and thread."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def wake_threadsafe(self) -> bool:
        """Wake the task from any thread. Returns False if its event loop has ended."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Wake the task, from its own event loop."""
        if not self.future.done():
            self.future.set_result(None)


class ConcurrencyLimit:
    """A semaphore for running requests, acquired in order from any event loop and thread.

    Without a limit it only counts.

    Args:
        most: the fixed upper limit, None for none.

    Attributes:
        running: the number of running requests.
        limit: the current limit, None without one. Its fraction is the progress towards the next integer.
    """

    def __init__(self, most: int | None = None) -> None:
        self.running = 0
        self.limit: float | None = most
        self._most = most
        self._enough = 0.0  # a learned limit is dropped when it reaches this value
        self._lowered_at = float("-inf")
        self._waiters: OrderedDict[QueueWaiter, None] = OrderedDict()  # ordered, with fast removal
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of waiting tasks."""
        return len(self._waiters)

    def try_acquire(self) -> bool:
        """Acquire without waiting. Returns False if the limit is reached or other tasks wait."""
        with self._lock:
            if self._waiters or not self._is_free():
                return False
            self.running += 1
            return True

    async def acquire(self) -> None:
        """Wait until the limit permits another request, and count it."""
        waiter = QueueWaiter()
        with self._lock:
            self._waiters[waiter] = None
            self._wake_next()
        try:
            await waiter.future
        except BaseException:
            with self._lock:
                if waiter in self._waiters:
                    del self._waiters[waiter]
                else:  # it was woken already: pass that on to the next waiter
                    self.running -= 1
                    self._wake_next()
            raise

    def release(self) -> None:
        """Count a request as ended."""
        with self._lock:
            self.running -= 1
            self._wake_next()

    def refused(self, *, sent: float, now: float) -> None:
        """Halve the limit. Refusals of requests sent before the last halving have no effect."""
        with self._lock:
            if sent <= self._lowered_at:
                return
            if self.limit is None:
                self._enough = 2.0 * self.running
            self._lowered_at = now
            self.limit = max(1.0, min(self.limit or self.running, self.running) / 2)

    def served(self) -> None:
        """Raise a lowered limit, by one per round."""
        with self._lock:
            limit = self.limit
            if limit is None or limit == self._most:
                return
            limit += 1.0 / limit
            if self._most is not None:
                limit = min(limit, float(self._most))
            done = self._most is None and limit >= self._enough and not self._waiters
            self.limit = None if done else limit
            self._wake_next()

    def _is_free(self) -> bool:
        return self.limit is None or self.running < int(self.limit)

    def _wake_next(self) -> None:
        while self._waiters and self._is_free():
            waiter, _ = self._waiters.popitem(last=False)
            if waiter.wake_threadsafe():
                self.running += 1
