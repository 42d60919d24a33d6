"""Turn chance, and what was tried before, into whether a call may go where more has to be learned."""

from __future__ import annotations

import random

from specclient.routing.learn.route_estimate import RouteEstimate

__all__ = ["Explorer"]

#: Routes whose last try is remembered; beyond it all are forgotten, which may cost a call each.
_MOST = 4096


class Explorer:
    """Decides for one client when to look again at what was left.

    Args:
        dice: drawn from once for every decision, so that what one call does never shifts what the next draws.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._tried: dict[str, int] = {}

    def draw(self) -> float:
        """Return a number from 0 to 1: below the share of calls that may go to learn more, this is one."""
        return self._dice.random()

    def due(self, route: str, estimate: RouteEstimate) -> bool:
        """Tell whether a route is tried that was left as slow or failing, or never called: once each time."""
        return (estimate.retry or not estimate.calls) and self._tried.get(route) != estimate.calls

    def trying(self, route: str, estimate: RouteEstimate) -> None:
        """Note that a route is being tried: nobody else is sent there before what came of it is known."""
        if len(self._tried) >= _MOST:
            self._tried.clear()
        self._tried[route] = estimate.calls
