"""Quality by route and task: learned from scores of answers, starting from the shipped or configured tiers.

A score is a number from 0 to 1, such as a thumb or a grader's mark. The quality of a route for a task is the
mean of a beta distribution: its tier counts as eight scores of the route, the scores of all its tasks as
eight of each task. Scores lose weight, so that a model that changes behind its name is followed. RouteLLM
(Ong et al., arXiv 2406.18665) also compares a predicted quality with a threshold, but learns it once, from
preferences between two models.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specclient.errors import ConfigurationError
from specclient.routing.choose.route_options import RouteOption
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import Call
from specclient.types.criterion import PromptTask

__all__ = ["QualityEstimate", "QualityModel"]

#: The weight of a tier, and of a route's other tasks, in scores; the tier of a model without one.
_PRIOR, _UNKNOWN = 8.0, 0.5
#: Scores after which one weighs half.
_SCORES = 200.0
#: Standard deviations of the ends of an interval that holds the quality with 80 % probability.
_ENDS = 1.28
#: Calls that may be scored, and routes and tasks whose scores are kept; beyond them the oldest are forgotten.
_CALLS, _KEPT = 10_000, 8192
#: Lists of options with learned qualities that are kept.
_LISTS = 256


@dataclass(frozen=True, slots=True)
class QualityEstimate:
    """The quality of a route's answers.

    Attributes:
        mean: the expected score, from 0 to 1.
        low, high: the ends of an interval that holds the quality with 80 % probability.
        scores: the number of scores behind it, old ones weighted less.
    """

    mean: float
    low: float
    high: float
    scores: float


class QualityModel:
    """The scores of answers, and the qualities that follow from them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The routes and tasks of calls by their ids, which are also in order; equal pairs are one object.
        self._calls: dict[str, tuple[str, PromptTask | None]] = {}
        self._order: deque[str] = deque()
        self._kinds: dict[tuple[str, PromptTask | None], tuple[str, PromptTask | None]] = {}
        #: Decayed sums of scores, and of their number.
        self._sums: OrderedDict[tuple[str, PromptTask | None], tuple[float, float]] = OrderedDict()
        self._version = 0
        self._applied: dict[
            tuple[int, PromptTask], tuple[int, Sequence[RouteOption], tuple[RouteOption, ...]]
        ] = {}
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child, as another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def note(self, call: Call) -> None:
        """Remember a finished call, so that its answer may be scored."""
        if call.status != "ok" or call.parent is not None:
            return
        with self._lock:
            kind = call.route.chosen, call.route.task
            if len(self._kinds) >= _KEPT:
                self._kinds.clear()
            self._calls[call.id] = self._kinds.setdefault(kind, kind)
            self._order.append(call.id)
            if len(self._order) > _CALLS:
                self._calls.pop(self._order.popleft(), None)

    def feedback(self, call_id: str, score: float) -> None:
        """Score the answer of a call; a later score of the same call counts in addition.

        Args:
            call_id: ``meta.id`` of the answer.
            score: from 0 to 1; True and False count as 1 and 0.

        Raises:
            ConfigurationError: another score, or a call that this client did not make, or made long ago.
        """
        if not isinstance(score, int | float) or not 0 <= score <= 1:
            raise ConfigurationError(f"the score is {score!r}; it must be a number from 0 to 1, or a boolean")
        known = self._calls.get(call_id)
        if known is None:
            raise ConfigurationError(
                f"no answered call {call_id!r} among this client's last {_CALLS:,}; pass the answer's "
                "meta.id to the client that made the call"
            )
        self.add(*known, float(score))

    def add(self, route: str, task: PromptTask | None, score: float) -> None:
        """Note a score of an answer to a prompt of a task; None where the task is unknown."""
        keep = 2 ** (-1 / _SCORES)
        with self._lock:
            for key in dict.fromkeys(((route, None), (route, task))):
                total, count = self._sums.pop(key, (0.0, 0.0))
                self._sums[key] = total * keep + score, count * keep + 1
            while len(self._sums) > _KEPT:
                self._sums.popitem(last=False)
            self._version += 1

    def of(self, route: str, task: PromptTask | None, tier: float | None) -> QualityEstimate | None:
        """Return the quality of a route for a task.

        Args:
            tier: the route's shipped or configured tier, None without one.

        Returns:
            None without a tier and without scores.
        """
        with self._lock:
            total, count = self._sums.get((route, None), (0.0, 0.0))
            own, scores = self._sums.get((route, task), (0.0, 0.0)) if task is not None else (total, count)
        if tier is None and not count:
            return None
        mean = ((_UNKNOWN if tier is None else tier) * _PRIOR + total) / (_PRIOR + count)
        weight = _PRIOR + count
        if task is not None:
            weight = min(weight, _PRIOR) + scores
            mean = (mean * (weight - scores) + own) / weight
        off = _ENDS * math.sqrt(max(mean * (1 - mean), 0.0) / (weight + 1))
        return QualityEstimate(mean, max(mean - off, 0.0), min(mean + off, 1.0), scores)

    def applied(self, options: tuple[RouteOption, ...], task: PromptTask) -> tuple[RouteOption, ...]:
        """Return options with what was learned of their quality; the same object until it changes."""
        version = self._version
        if not version:
            return options
        known = self._applied.get((id(options), task))
        if known is not None and known[0] == version and known[1] is options:
            return known[2]
        made = []
        for option in options:
            found = self.of(option.route, task, option.quality)
            made.append(option if found is None else replace(option, quality=found.mean))
        if len(self._applied) >= _LISTS:
            self._applied.clear()
        self._applied[id(options), task] = version, options, tuple(made)
        return self._applied[id(options), task][2]
