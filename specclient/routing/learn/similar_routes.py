"""Similar routes: what the calls of other routes imply for one that has not answered yet.

Two routes are similar if they have the same provider, or serve the same model at two providers. The logarithm
of a speed is taken as the sum of a mean, an effect of the provider, an effect of the model, and chance: a
random-effects model with crossed effects (Robinson: "That BLUP is a Good Thing", Statistical Science 1991).
Each effect is the mean deviation of its routes, drawn to 0 if they are few. The seconds of a token are first
divided by the square root of the model's size where its name has one, as for published speeds.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.speed import TypicalSpeed

__all__ = ["SimilarRoutes", "model_billions"]

#: Routes whose speed is remembered; beyond it the least recently measured one is forgotten.
_ROUTES = 256
#: The weight, in routes, with which an effect is drawn to 0: the variance of single routes in variances
#: between providers, or between models.
_LEAN = 1.0
#: The weight in calls of what similar routes showed.
_CALLS = 1
#: Calls of a route at which its speed is noted.
_NOTED = frozenset((2, 4, 8, 16, 32, 64))
#: The least seconds whose logarithm is taken.
_LEAST_S = 1e-6
_SIZE = re.compile(r"(?<![\d.a-z])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)

#: Logarithms: of the first token of an empty prompt, of a token of the answer for a model of a billion
#: parameters, and of a token of the prompt as a share of the first token.
_Logs = tuple[float, float, float]


class _Traits(NamedTuple):
    """The provider and the model of a route, without regard to case, and the size in the model's name."""

    provider: str
    model: str
    billions: float | None

    @property
    def log_slower(self) -> float:
        """The logarithm of the seconds of a token relative to those of a model of a billion parameters."""
        return 0.0 if self.billions is None else 0.5 * math.log(max(self.billions, 1.0))


class SimilarRoutes:
    """The speeds of measured routes, from which those of similar ones are predicted."""

    __slots__ = ("_asked", "_known")

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Logs] = OrderedDict()
        self._asked: set[str] = set()

    def note(self, route: str, calls: int, speed: TypicalSpeed | None) -> Collection[str]:
        """Note the speed of a route after a call; return the routes whose predictions no longer hold.

        Args:
            calls: of the route so far; only some numbers of calls are noted, since predictions are rough.
            speed: None if it is not known.
        """
        traits = _traits(route)
        if calls not in _NOTED or speed is None or not speed.ttft_known or traits.provider == "local":
            return ()
        first = max(speed.ttft_s - speed.prompt_token_s * speed.prompt, _LEAST_S)
        self._known.pop(route, None)
        self._known[route] = (
            math.log(first),
            math.log(max(speed.token_s, _LEAST_S)) - traits.log_slower,
            math.log(max(speed.prompt_token_s / first, _LEAST_S)),
        )
        if len(self._known) > _ROUTES:
            self._known.popitem(last=False)
        asked, self._asked = self._asked, set()
        return asked

    def prior(self, route: str) -> RoutePrior | None:
        """Return what similar routes imply for a route, None without any."""
        traits = _traits(route)
        if traits.provider == "local":  # its speed is that of this machine
            return None
        self._asked.add(route)
        rows = [(_traits(each), logs) for each, logs in self._known.items() if each != route]
        of_provider = [logs for other, logs in rows if other.provider == traits.provider]
        of_model = [logs for other, logs in rows if other.model == traits.model]
        if not of_provider and not of_model:
            return None
        mean = _mean([logs for _, logs in rows])
        first, token, growth = (
            middle + _effect(of_provider, place, middle) + _effect(of_model, place, middle)
            for place, middle in enumerate(mean)
        )
        ttft_s = math.exp(first)
        return RoutePrior(
            ttft_s,
            math.exp(token + traits.log_slower),
            prompt_token_s=math.exp(growth) * ttft_s,
            calls=_CALLS,
            similar=True,
        )


def _mean(rows: Collection[_Logs]) -> _Logs:
    firsts, tokens, growths = zip(*rows, strict=True)
    count = len(rows)
    return sum(firsts) / count, sum(tokens) / count, sum(growths) / count


def _effect(rows: Collection[_Logs], place: int, mean: float) -> float:
    return sum(logs[place] - mean for logs in rows) / (len(rows) + _LEAN)


@lru_cache(maxsize=4096)
def _traits(route: str) -> _Traits:
    provider, _, model = route.lower().partition("/")
    name = model.rpartition("/")[2]  # marketplaces name the maker of a model, too
    return _Traits(provider, name, model_billions(name))


def model_billions(name: str) -> float | None:
    """Return the billions of parameters that a model's name states, None if it does not."""
    found = _SIZE.search(name)
    if found is None:
        return None
    return float(found[1]) / (1 if found[2].lower() == "b" else 1000)
