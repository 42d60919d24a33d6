"""A queue of keys by their time of expiry: estimates of routes, and measured loads."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

__all__ = ["ExpiryQueue"]

#: Whether the entry is a load (else estimates), and the name of the destination or route.
_Key = tuple[bool, str]


class ExpiryQueue:
    """Keys by the time at which they expire.

    Attributes:
        next_at: the time of the next one, infinity without any.
    """

    __slots__ = ("_at", "_heap", "next_at")

    def __init__(self) -> None:
        self._heap: list[tuple[float, _Key]] = []
        self._at: dict[_Key, float] = {}
        self.next_at = float("inf")

    def __len__(self) -> int:
        """The number of entries, including those replaced by an earlier expiry."""
        return len(self._heap)

    def add(self, key: _Key, at: float) -> None:
        """Let a key expire at a time, unless it expires earlier already."""
        if self._at.get(key, float("inf")) <= at:
            return
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        self.next_at = min(self.next_at, at)

    def expired(self, now: float) -> Iterator[_Key]:
        """Remove and yield the expired keys, including keys added during the iteration."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:  # otherwise an earlier entry replaced it
                del self._at[key]
                yield key
        self.next_at = self._heap[0][0] if self._heap else float("inf")
