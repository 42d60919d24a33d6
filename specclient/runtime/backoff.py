"""Pauses that double after each failure, however many there are."""

from __future__ import annotations

__all__ = ["doubled"]

#: Doublings from which on every pause is at its maximum. The power of all failures would exceed a float after
#: a thousand.
_MOST = 64


def doubled(first_s: float, times: int, most_s: float) -> float:
    """Return a pause that is doubled so many times, up to a maximum.

    Args:
        first_s: seconds without a doubling.
        times: number of doublings, at least 0.
        most_s: the most seconds.
    """
    return min(first_s * 2.0 ** min(times, _MOST), most_s)
