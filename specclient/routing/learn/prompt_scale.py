"""Prompt token scale: the tokens of a prompt on each route, relative to the common estimate."""

from __future__ import annotations

from collections import OrderedDict

from specclient.types.call import Call

__all__ = ["PromptTokenScale"]

#: The weight of the newest call; the relative change of a scale after which it is published.
_NEWEST, _MOVED = 0.2, 0.1
#: Routes remembered; beyond it the first one seen is forgotten.
_ROUTES = 2048
_LEAST, _MOST = 0.2, 5.0


class PromptTokenScale:
    """The tokens of prompts on each route, relative to the estimate.

    A prompt's tokens are estimated from its bytes, since counting them takes longer than a decision. The
    effect of a route's vocabulary and chat template is learned from the usage that it reports.
    """

    def __init__(self) -> None:
        self._scales: OrderedDict[str, float] = OrderedDict()
        self._published: dict[str, float] = {}
        self.version = 0

    def observe(self, call: Call) -> None:
        """Learn from a finished call that was routed."""
        expected, reported = call.route.prompt_tokens, call.usage.prompt
        if not expected or not reported or call.usage.estimated:
            return
        route = call.route.chosen
        ratio = min(max(reported / expected, _LEAST), _MOST)
        known = self._scales.get(route)
        scale = self._scales[route] = ratio if known is None else known + _NEWEST * (ratio - known)
        if abs(scale - self._published.get(route, 1.0)) > _MOVED * self._published.get(route, 1.0):
            self._published[route] = scale
            self.version += 1
        if len(self._scales) > _ROUTES:
            forgotten, _ = self._scales.popitem(last=False)
            self._published.pop(forgotten, None)

    def scale(self, route: str) -> float:
        """Return the tokens of a prompt on a route per estimated token."""
        return self._published.get(route, 1.0)
