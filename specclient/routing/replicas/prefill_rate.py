"""The seconds of prefill of one token that is in no cache, from the first tokens of finished calls.

The time to the first token is the wait behind earlier prompts, which has nothing to do with the prompt's own
length, and the prefill, which grows with it. So the slope of a line through first tokens by length is the
prefill alone (least squares, in which a call weighs half after some others).
"""

from __future__ import annotations

__all__ = ["PrefillRate"]

#: Calls after which a call weighs half, and those before which nothing is known.
_CALLS, _KNOWN = 400.0, 8.0


class PrefillRate:
    """Learns the prefill of a pool's replicas."""

    __slots__ = ("_count", "_x", "_xx", "_xy", "_y")

    def __init__(self) -> None:
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, tokens: float, first_s: float) -> None:
        """Note a first token after some seconds, the expected wait not counted.

        Args:
            tokens: of the prompt, without cached ones.
            first_s: the seconds.
        """
        keep = 2 ** (-1 / _CALLS)
        self._count = self._count * keep + 1
        self._x = self._x * keep + tokens
        self._y = self._y * keep + first_s
        self._xx = self._xx * keep + tokens * tokens
        self._xy = self._xy * keep + tokens * first_s

    @property
    def token_s(self) -> float | None:
        """The seconds of one token, None where unknown, as for prompts that are all alike."""
        if self._count < _KNOWN:
            return None
        spread = self._xx - self._x * self._x / self._count
        if spread <= 1e-6 * self._xx:
            return None
        return max((self._xy - self._x * self._y / self._count) / spread, 0.0)
