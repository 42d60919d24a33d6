"""Refusals by a rate limit: how long a route is expected to refuse requests after it has refused one.

A refusal says nothing about the health of a route, and the next request may be admitted a moment later. After
a refusal the route is left for a pause. The pause grows while no request that follows it is served, as with a
quota that is spent, and shrinks otherwise, as with a limit that a burst of requests has reached.
"""

from __future__ import annotations

import math

__all__ = ["RefusalPause"]

#: Seconds of the first pause, of the shortest, and of the longest one.
_FIRST_S, _LEAST_S, _MOST_S = 2.0, 0.5, 600.0
#: The factor of a pause after which a request was refused, and the further one if another was served.
_LONGER, _SHORTER = 2.0, 0.9


class RefusalPause:
    """The pause of one route after a rate limit has refused a request.

    Attributes:
        until: the time in seconds until which requests are expected to be refused.
    """

    __slots__ = ("_grown", "_pause_s", "_since", "until")

    def __init__(self) -> None:
        self._pause_s = _FIRST_S
        self._since = self.until = -math.inf  # the ends of the pause before the last one, and of the last one
        self._grown = False  # whether the last refusal made the pause longer

    def refused(self, at: float, started: float) -> None:
        """Note a refusal.

        Args:
            at: when it arrived, in seconds.
            started: when the request was sent. Requests that were sent before the pause ended say nothing
                about its length.
        """
        if started < self.until:
            return
        if self.until > -math.inf:
            self._pause_s = min(self._pause_s * _LONGER, _MOST_S)
            self._grown = True
        self._since, self.until = self.until, at + self._pause_s

    def served(self, started: float) -> None:
        """Note a request that was served, by when it was sent.

        If that was after a pause, the refusal that followed it came from the other requests, not from a pause
        that was too short. Answers come later than refusals, so this takes back what the refusal has done.
        """
        if self._grown and started >= self._since:
            self._pause_s = max(self._pause_s / _LONGER * _SHORTER, _LEAST_S)
            self._grown = False
