"""Turn what is left of a rate limit into the instant at which the next cost can be paid.

Costs are taken as requests set out, even if that leaves less than nothing: an answer may tell of less than
was known, and a call may cost more than the whole capacity.
"""

from __future__ import annotations

import math


class RateLimitBucket:
    """Units that are left of a limit.

    Args:
        capacity: units when full.
        period_s: seconds in which the whole capacity comes back.
        steady: whether it comes back bit by bit (a token bucket), or all at the end of a period (a window).
        now: seconds of the transport's clock; the bucket is full then.
    """

    __slots__ = ("_at", "_level", "_period_s", "_rate", "_refilled_at", "_seen_at", "_steady", "capacity")

    def __init__(self, capacity: float, period_s: float, *, steady: bool, now: float) -> None:
        self.capacity = capacity
        self._period_s = period_s
        self._steady = steady
        self._rate = capacity / period_s  # units a second
        self._level = capacity
        self._at = now  # when the level was that
        self._refilled_at = now + period_s  # the end of this window
        self._seen_at = -math.inf

    def observe(
        self, capacity: float, left: float, full_in: float | None, *, sent: float, now: float
    ) -> bool:
        """Learn from an answer what was left; False for one whose request is older than what is known.

        Args:
            left: units, after the answer's own request and before any sent later.
            full_in: seconds until the bucket is full, None where the answer does not say.
            sent: when its request set out: endpoints count a request as it arrives.
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
        """Return when ``cost`` can be paid: ``now`` or later. More than the capacity waits for a full one.

        Args:
            before: what others will have taken by then.
        """
        self._refill(now)
        missing = min(cost, self.capacity) + before - self._level
        if missing <= 0:
            return now
        if self._steady:
            return now + missing / self._rate
        return self._refilled_at + (math.ceil(missing / self.capacity) - 1) * self._period_s

    def is_full(self, now: float) -> bool:
        """Tell whether nothing is missing."""
        return self.ready(self.capacity, now) <= now

    def take(self, cost: float) -> None:
        """Pay; a negative cost gives back."""
        self._level -= cost

    def _refill(self, now: float) -> None:
        if self._steady:
            self._level = min(self.capacity, self._level + self._rate * max(0.0, now - self._at))
            self._at = max(self._at, now)
        elif now >= self._refilled_at:
            windows = 1 + int((now - self._refilled_at) / self._period_s)
            self._level = min(self.capacity, self._level + windows * self.capacity)
            self._refilled_at += windows * self._period_s
