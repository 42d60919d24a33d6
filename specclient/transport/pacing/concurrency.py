"""Turn refusals into a limit of how many requests run at once, and let the next one in as one ends.

Additive increase, multiplicative decrease, as TCP does it (RFC 5681): a refusal halves the limit, a round
without one raises it by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict


class QueueWaiter:
    """Somebody who waits in a queue, until it is woken from whatever loop and thread."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def call(self) -> bool:
        """Wake the waiter, from any thread; False where its loop has ended."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Wake the waiter, from its own loop."""
        if not self.future.done():
            self.future.set_result(None)


class ConcurrencyLimit:
    """Places for requests under way, taken in the order of asking, from any loop and thread.

    Without a limit, taking one counts and no more.

    Args:
        most: the fixed limit, None for none.

    Attributes:
        running: requests under way.
        limit: how many may be; None without a limit. Its fraction is progress towards the next one.
    """

    def __init__(self, most: int | None = None) -> None:
        self.running = 0
        self.limit: float | None = most
        self._most = most
        self._enough = 0.0  # at this many, a limit that was learned is forgotten
        self._lowered_at = float("-inf")
        self._waiters: OrderedDict[QueueWaiter, None] = OrderedDict()  # any of them can leave at once
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiters)

    def try_take(self) -> bool:
        """Take a place if there is one and nobody waits; else :meth:`take` waits for it."""
        with self._lock:
            if self._waiters or not self._is_free():
                return False
            self.running += 1
            return True

    async def take(self) -> None:
        """Return with a place taken."""
        waiter = QueueWaiter()
        with self._lock:
            self._waiters[waiter] = None
            self._let_in()
        try:
            await waiter.future
        except BaseException:
            with self._lock:
                if waiter in self._waiters:
                    del self._waiters[waiter]
                else:  # let in meanwhile: the next one takes its place
                    self.running -= 1
                    self._let_in()
            raise

    def give(self) -> None:
        """Give a place back."""
        with self._lock:
            self.running -= 1
            self._let_in()

    def refused(self, *, sent: float, now: float) -> None:
        """Halve the limit; refusals of requests sent before the last halving count with it."""
        with self._lock:
            if sent <= self._lowered_at:
                return
            if self.limit is None:
                self._enough = 2.0 * self.running
            self._lowered_at = now
            self.limit = max(1.0, min(self.limit or self.running, self.running) / 2)

    def served(self) -> None:
        """Raise a limit that was lowered, by one a round."""
        with self._lock:
            limit = self.limit
            if limit is None or limit == self._most:
                return
            limit += 1.0 / limit
            if self._most is not None:
                limit = min(limit, float(self._most))
            done = self._most is None and limit >= self._enough and not self._waiters
            self.limit = None if done else limit
            self._let_in()

    def _is_free(self) -> bool:
        return self.limit is None or self.running < int(self.limit)

    def _let_in(self) -> None:
        while self._waiters and self._is_free():
            waiter, _ = self._waiters.popitem(last=False)
            if waiter.call():
                self.running += 1
