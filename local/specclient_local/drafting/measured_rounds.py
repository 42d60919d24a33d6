"""The time of recorded rounds by draft length, measured while they run.

Costs are calibrated when an engine loads, by greedy rounds over a short context. Rounds of requests that are
sampled, or whose contexts are long, take longer, and by another factor for each length. A draft that gains
little at its calibrated cost may lose at its real one.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable, Sequence

_KEPT = 5
"""Latest rounds of a length whose median counts. The median leaves out rounds that something delayed."""

_ENOUGH = 3
"""Rounds of a length from which on their median is used."""

_PLAIN_EVERY = 64
"""Rounds after which a plain one is measured again while drafts gain little."""

_CLEAR_GAIN = 1.3
"""Speed-up from which on plain rounds are not measured again."""


class MeasuredRounds:
    """Seconds of rounds by kind and draft length.

    A kind is whatever the time depends on besides the length, such as the number of slots.
    """

    def __init__(self) -> None:
        self._latest: dict[tuple[Hashable, int], deque[float]] = {}
        self._seconds: dict[tuple[Hashable, int], float] = {}
        self._since_plain: dict[Hashable, int] = {}

    def add(self, kind: Hashable, length: int, seconds: float) -> None:
        """Add a round of ``length`` drafted tokens."""
        latest = self._latest.setdefault((kind, length), deque(maxlen=_KEPT))
        latest.append(seconds)
        if len(latest) >= _ENOUGH:
            self._seconds[kind, length] = statistics.median(latest)
        self._since_plain[kind] = self._since_plain.get(kind, 0) + 1 if length else 0

    def costs(self, kind: Hashable, calibrated: Sequence[float]) -> list[float]:
        """Return the costs of rounds with 0, 1, … drafted tokens, in an unknown unit.

        A length that has been measured costs its seconds. Any other one costs its calibrated cost times the
        factor of the nearest measured lengths below and above it, interpolated.

        Args:
            kind: of the rounds.
            calibrated: costs before any round was measured.
        """
        factors = {
            length: self._seconds[kind, length] / cost
            for length, cost in enumerate(calibrated)
            if (kind, length) in self._seconds
        }
        return [cost * _interpolated(factors, length) for length, cost in enumerate(calibrated)]

    def wants_plain(self, kind: Hashable, gain: float) -> bool:
        """Return whether the next round should be plain, to be compared with those that draft.

        Args:
            kind: of the round.
            gain: the expected speed-up by a draft.
        """
        if (kind, 0) not in self._seconds:
            return True
        return gain < _CLEAR_GAIN and self._since_plain[kind] >= _PLAIN_EVERY


def _interpolated(factors: dict[int, float], length: int) -> float:
    """Return the factor at a length, by linear interpolation; 1 if there is none."""
    below = max((known for known in factors if known <= length), default=None)
    above = min((known for known in factors if known >= length), default=None)
    if below is None or above is None:
        nearest = above if below is None else below
        return 1.0 if nearest is None else factors[nearest]
    share = (length - below) / (above - below) if above > below else 0.0
    return factors[below] + share * (factors[above] - factors[below])
