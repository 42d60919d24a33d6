"""Exploration: which routes are tried to learn more about them, and when."""

from __future__ import annotations

import random

from specclient.routing.learn.route_estimate import RouteEstimate

__all__ = ["Explorer"]

#: Routes whose last exploration is remembered; beyond it all are forgotten and may be tried again.
_MOST = 4096
#: The decayed number of calls from which a route's speed is known well enough for any number of calls.
_KNOWN = 8.0
#: How often a route is passed over before calls that have not finished are forgotten.
_PATIENCE = 20


class Explorer:
    """Decides for one client when a route is tried again.

    Args:
        dice: random numbers; every decision draws one, so that no call changes the numbers of later calls.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._tried: dict[str, int] = {}
        #: By route: its calls that had finished at first, those sent since, and how often it was passed over.
        self._sent: dict[str, tuple[int, int, int]] = {}

    def draw(self) -> float:
        """Return a random number from 0 to 1; a call explores if it is below the policy's share."""
        return self._dice.random()

    def due(self, route: str, estimate: RouteEstimate) -> bool:
        """Return whether a route that was left as slow or failing, or never called, is due for one call."""
        return (estimate.retry or not estimate.calls) and self._tried.get(route) != estimate.calls

    def admits(self, route: str, estimate: RouteEstimate) -> bool:
        """Return whether a route that is little known may get a further call before others have finished.

        As many calls may be unfinished as have shown its present speed, at least one: a burst of calls that
        all go to a route that proves too slow would all be late. Calls that end without a sample, such as
        cancelled ones, count until the route has been passed over a few times. Priors of the route itself
        count as knowledge, those of similar routes do not.
        """
        has_prior = estimate.assumed and estimate.ttft_s is not None and not estimate.similar
        if estimate.evidence >= _KNOWN or has_prior:
            self._sent.pop(route, None)
            return True
        known, sent, passed = self._sent.get(route, (estimate.calls, 0, 0))
        if sent - (estimate.calls - known) < max(estimate.evidence, 1.0):
            return True
        if passed >= _PATIENCE:
            self._sent.pop(route, None)
            return True
        self._sent[route] = known, sent, passed + 1
        return False

    def sending(self, route: str, estimate: RouteEstimate) -> None:
        """Note that a call is sent to a route."""
        if estimate.evidence < _KNOWN:
            if len(self._sent) >= _MOST:
                self._sent.clear()
            known, sent, _ = self._sent.get(route, (estimate.calls, 0, 0))
            self._sent[route] = known, sent + 1, 0

    def trying(self, route: str, estimate: RouteEstimate) -> None:
        """Note that a route is being tried; it is not due again before that call has finished."""
        if len(self._tried) >= _MOST:
            self._tried.clear()
        self._tried[route] = estimate.calls
