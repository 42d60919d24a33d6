"""Token bucket and fixed window: when a rate limit permits the next request.

Costs are deducted when requests are sent, even if the level becomes negative: a response may report less than
was known, and a call may cost more than the whole capacity.
"""

from __future__ import annotations

import math


class RateLimitBucket:
    """The units left of one rate limit.

    Args:
        capacity: units when full.
        period_s: seconds in which the whole capacity is restored.
        steady: whether it is restored continuously (a token bucket) or at the end of each period (a window).
        now: seconds of the transport's clock; the bucket is full at this time.
    """

    __slots__ = ("_at", "_level", "_period_s", "_rate", "_refilled_at", "_seen_at", "_steady", "capacity")

    def __init__(self, capacity: float, period_s: float, *, steady: bool, now: float) -> None:
        self.capacity = capacity
        self._period_s = period_s
        self._steady = steady
        self._rate = capacity / period_s  # units per second
        self._level = capacity
        self._at = now  # the time of the level
        self._refilled_at = now + period_s  # the end of this window
        self._seen_at = -math.inf

    def observe(
        self, capacity: float, left: float, full_in: float | None, *, sent: float, now: float
    ) -> bool:
        """Update the level from a response; returns False, without effect, if a later one has been seen.

        Args:
            capacity: units when full.
            left: units left after the response's request, before any later one.
            full_in: seconds until the bucket is full, None if unknown.
            sent: when the request was sent, because endpoints count requests on arrival.
            now: the current time.
        """
        if sent < self._seen_at:
            return False
        self._seen_at = sent
        self.capacity = capacity
        self._level = left
        if self._steady:
            self._at = sent
            spent = capacity - left
            self._rate = spent / full_in if full_in and spent > 0 else capacity / self._period_s
        elif full_in is not None:
            self._refilled_at = now + full_in
        return True

    def ready(self, cost: float, now: float, before: float = 0.0) -> float:
        """Return when ``cost`` can be deducted, ``now`` or later; a larger cost waits for the full capacity.

        Args:
            cost: units.
            now: the current time.
            before: units that earlier requests in the queue will deduct.
        """
        self._refill(now)
        missing = min(cost, self.capacity) + before - self._level
        if missing <= 0:
            return now
        if self._steady:
            return now + missing / self._rate
        return self._refilled_at + (math.ceil(missing / self.capacity) - 1) * self._period_s

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full."""
        return self.ready(self.capacity, now) <= now

    def take(self, cost: float) -> None:
        """Deduct ``cost``; a negative cost is a refund."""
        self._level -= cost

    def _refill(self, now: float) -> None:
        if self._steady:
            self._level = min(self.capacity, self._level + self._rate * max(0.0, now - self._at))
            self._at = max(self._at, now)
        elif now >= self._refilled_at:
            windows = 1 + int((now - self._refilled_at) / self._period_s)
            self._level = min(self.capacity, self._level + windows * self.capacity)
            self._refilled_at += windows * self._period_s
