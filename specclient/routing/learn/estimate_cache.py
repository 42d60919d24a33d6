"""The cache of estimates: each is computed once, until something new is known about its route."""

from __future__ import annotations

from collections.abc import Sequence

from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.criterion import PromptTask

__all__ = ["EstimateCache", "EstimateView"]

#: Estimates that are cached; beyond it all are forgotten.
_KEPT = 16_384

#: The call that estimates are for: its task, the percentile, and its prompt tokens by
#: :func:`specclient.routing.learn.route_estimate.representative_length`.
EstimateView = tuple[PromptTask | None, float, int | None]


class EstimateCache:
    """Estimates by view and route. The caller holds its lock to change them, not to read them.

    Attributes:
        version: grows whenever an estimate is dropped.
    """

    __slots__ = ("_count", "_views", "version")

    def __init__(self) -> None:
        self._views: dict[EstimateView, dict[str, RouteEstimate]] = {}
        self._count = 0
        self.version = 0

    def __len__(self) -> int:
        """Return the number of estimates."""
        return self._count

    def get(self, view: EstimateView, route: str) -> RouteEstimate | None:
        """Return the estimate of a route, None if it must be computed."""
        known = self._views.get(view)
        return None if known is None else known.get(route)

    def get_all(self, view: EstimateView, routes: Sequence[str]) -> list[RouteEstimate] | None:
        """Return the estimates of routes, None if one must be computed."""
        known = self._views.get(view)
        if known is None:
            return None
        try:
            return [known[route] for route in routes]
        except KeyError:
            return None

    def keep(self, view: EstimateView, route: str, estimate: RouteEstimate) -> None:
        """Add an estimate."""
        if self._count >= _KEPT:
            self._views.clear()
            self._count = 0
        known = self._views.setdefault(view, {})
        self._count += route not in known
        known[route] = estimate

    def drop(self, route: str) -> None:
        """Drop the estimates of a route."""
        self.version += 1
        for known in self._views.values():
            if known.pop(route, None) is not None:
                self._count -= 1

    def drop_place(self, place: str) -> None:
        """Drop the estimates of all routes of a destination, ``provider`` or ``provider/model``."""
        for route in {route for known in self._views.values() for route in known}:
            if route == place or route.startswith(f"{place}/"):
                self.drop(route)
