"""Exploration: which routes are tried to learn more about them, and when."""

from __future__ import annotations

import random

from specclient.routing.learn.route_estimate import RouteEstimate

__all__ = ["Explorer"]

#: Routes whose last exploration is remembered; beyond it all are forgotten and may be tried again.
_MOST = 4096


class Explorer:
    """Decides for one client when a route is tried again.

    Args:
        dice: random numbers; every decision draws one, so that no call changes the numbers of later calls.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._tried: dict[str, int] = {}

    def draw(self) -> float:
        """Return a random number from 0 to 1; a call explores if it is below the policy's share."""
        return self._dice.random()

    def due(self, route: str, estimate: RouteEstimate) -> bool:
        """Return whether a route that was left as slow or failing, or never called, is due for one call."""
        return (estimate.retry or not estimate.calls) and self._tried.get(route) != estimate.calls

    def trying(self, route: str, estimate: RouteEstimate) -> None:
        """Note that a route is being tried; it is not due again before that call has finished."""
        if len(self._tried) >= _MOST:
            self._tried.clear()
        self._tried[route] = estimate.calls
