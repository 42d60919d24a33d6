"""Turn finished calls into how many tokens each route makes of a prompt, beside what all are estimated by."""

from __future__ import annotations

from collections import OrderedDict

from specclient.types.call import Call

__all__ = ["PromptTokenScale"]

#: How much the newest call counts, and by how much what is learned must have moved before anybody is told.
_NEWEST, _MOVED = 0.2, 0.1
#: Routes remembered; beyond it the one that was first seen is forgotten.
_ROUTES = 2048
_LEAST, _MOST = 0.2, 5.0


class PromptTokenScale:
    """What prompts have come to, by route.

    A prompt's tokens are estimated from its bytes, as counting them costs more than a decision; a route's own
    vocabulary, its template and what it adds to prompts are learned from the usage that it tells.
    """

    def __init__(self) -> None:
        self._scales: OrderedDict[str, float] = OrderedDict()
        self._told: dict[str, float] = {}
        self.version = 0

    def observe(self, call: Call) -> None:
        """Learn from a finished call that was routed."""
        expected, told = call.route.prompt_tokens, call.usage.prompt
        if not expected or not told or call.usage.estimated:
            return
        route = call.route.chosen
        ratio = min(max(told / expected, _LEAST), _MOST)
        known = self._scales.get(route)
        scale = self._scales[route] = ratio if known is None else known + _NEWEST * (ratio - known)
        if abs(scale - self._told.get(route, 1.0)) > _MOVED * self._told.get(route, 1.0):
            self._told[route] = scale
            self.version += 1
        if len(self._scales) > _ROUTES:
            forgotten, _ = self._scales.popitem(last=False)
            self._told.pop(forgotten, None)

    def scale(self, route: str) -> float:
        """Return the tokens that a route makes of a prompt for each one that was estimated."""
        return self._told.get(route, 1.0)
