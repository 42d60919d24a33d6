"""Summaries of a replay: the figures by which policies are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specclient.routing.simulate.baselines import GroundTruth
from specclient.routing.simulate.replay import ReplayedCall, ReplayResult
from specclient.routing.simulate.scenario import RouteChange, Scenario
from specclient.types.criterion import CRITERIA, PromptTask

__all__ = ["ChangeRecovery", "ReplaySummary", "best_fixed", "find_recoveries", "summarize"]

#: Calls before and after a change that show whether it moved the best choice, and calls that show whether
#: good choices are back.
_AROUND, _SPAN = 50, 20
_MOVED, _BACK = 0.1, 0.1

#: Calls after a change whose choices are compared, in groups of ten, to the later ones.
_FIRST, _TEN = 50, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """The results of one selector over all calls.

    Attributes:
        answered: the number of answered calls, of ``calls``.
        cost: mean dollars of answered calls.
        p50_s, p95_s: quantiles of the seconds to the whole answer.
        ttft_p95_s: a quantile of the seconds to the first token.
        violations: the share of calls that did not keep their limits, unanswered ones included.
        over: ``violations`` above the share that the percentile allows, at least 0.
        regret: the mean by which choices were worse than the best ones.
        good: the share of choices as good as the best one, or nearly.
        routes: the share of calls by the route that answered.
        by_task: violations by task.
        figures: the mean over answered calls of the criteria without fields of their own, by name; None
            where unknown.
    """

    name: str
    calls: int
    answered: int
    cost: float
    p50_s: float
    p95_s: float
    ttft_p95_s: float
    violations: float
    over: float
    regret: float
    good: float
    routes: Mapping[str, float] = field(default_factory=dict)
    by_task: Mapping[PromptTask, float] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecovery:
    """The recovery after a change that moved the best choice.

    Attributes:
        at: seconds since the start.
        route: the route that changed.
        what: the kind of change.
        calls: the number of calls until good choices were as frequent as in the whole run; None if the best
            choice moved again, or the run ended, before that.
        rarer: the share by which good choices were rarer in the first ten calls after the change, the next
            ten, and so on to the fiftieth, than in the later half of the calls before the next change; empty
            with fewer than a hundred calls. Ten calls show little: average over changes.
    """

    at: float
    route: str
    what: str
    calls: int | None
    rarer: tuple[float, ...] = ()


def summarize(played: ReplayResult, percentile: float) -> ReplaySummary:
    """Return the summary of a run.

    Args:
        percentile: the share of calls that must keep the limits.
    """
    steps = played.steps
    answered = [step for step in steps if step.served is not None]
    violations = _share(steps, lambda step: not step.kept)
    tasks = sorted({step.call.task for step in steps})
    by_task = {
        task: _share([s for s in steps if s.call.task == task], lambda s: not s.kept) for task in tasks
    }
    served = Counter(step.served or "" for step in answered)
    return ReplaySummary(
        name=played.name,
        calls=len(steps),
        answered=len(answered),
        cost=sum(step.cost for step in answered) / max(len(answered), 1),
        p50_s=_quantile([step.latency_s for step in answered], 0.5),
        p95_s=_quantile([step.latency_s for step in answered], 0.95),
        ttft_p95_s=_quantile([step.ttft_s for step in answered if step.ttft_s is not None], 0.95),
        violations=violations,
        over=max(violations - (1 - percentile), 0.0),
        regret=sum(step.regret for step in steps) / max(len(steps), 1),
        good=_share(steps, lambda step: step.good),
        routes={route: n / len(steps) for route, n in served.most_common()},
        by_task=by_task,
        figures=_mean_figures(answered),
    )


def _mean_figures(steps: Sequence[ReplayedCall]) -> dict[str, float | None]:
    """Return the mean of each figure over the calls in which it is known, None without any."""
    means: dict[str, float | None] = {}
    for name in (each.name for each in CRITERIA.values() if not each.has_fields):
        values = [value for step in steps if (value := step.figures.get(name)) is not None]
        means[name] = sum(values) / len(values) if values else None
    return means


def best_fixed(fixed: Sequence[ReplaySummary], *, slack: float = 0.02) -> ReplaySummary:
    """Return the cheapest fixed route that keeps the limits as often as required, within ``slack``.

    If none does, it is the one that keeps them most often.
    """
    keeping = [each for each in fixed if each.over <= slack]
    if keeping:
        return min(keeping, key=lambda each: each.cost)
    return min(fixed, key=lambda each: (each.violations, each.cost))


def find_recoveries(ground: Scenario, judge: GroundTruth, played: ReplayResult) -> list[ChangeRecovery]:
    """Return the recovery after each change that moved the best choice.

    Choices are good again when, among the twenty calls that follow, they are at most ten points rarer than
    over the run. Calls are counted from the change to the first of the twenty.
    """
    steps = played.steps
    usual = _share(steps, lambda step: step.good)
    moved = [
        (change, start)
        for change in ground.changes
        if _moved(judge, steps, change, start := _first_at(steps, change.at))
    ]
    found = []
    for place, (change, start) in enumerate(moved):
        end = moved[place + 1][1] if place + 1 < len(moved) else len(steps)
        if end - start < _SPAN:
            continue  # the best choice moved again too early
        calls = next(
            (
                at - start
                for at in range(start, end - _SPAN + 1)
                if _share(steps[at : at + _SPAN], lambda step: step.good) >= usual - _BACK
            ),
            None,
        )
        rarer = _rarer(steps[start:end])
        found.append(
            ChangeRecovery(at=change.at, route=change.route, what=change.what, calls=calls, rarer=rarer)
        )
    return found


def _rarer(steps: Sequence[ReplayedCall]) -> tuple[float, ...]:
    """Return the share by which good choices are rarer at first, ten by ten, than in the later half."""
    if len(steps) < 2 * _FIRST:
        return ()
    later = _share(steps[len(steps) // 2 :], lambda step: step.good)
    return tuple(
        later - _share(steps[at : at + _TEN], lambda step: step.good) for at in range(0, _FIRST, _TEN)
    )


def _moved(judge: GroundTruth, steps: Sequence[ReplayedCall], change: RouteChange, start: int) -> bool:
    """Return whether a change removed its route from the best choices, or added it to them."""

    def part(some: Sequence[ReplayedCall]) -> float:
        ranked = [judge.ranked(step.call, lambda _: 0.0)[0].route for step in some]
        return ranked.count(change.route) / max(len(ranked), 1)

    before, after = steps[max(start - _AROUND, 0) : start], steps[start : start + _AROUND]
    return bool(before) and len(after) >= _SPAN and abs(part(before) - part(after)) > _MOVED


def _first_at(steps: Sequence[ReplayedCall], at: float) -> int:
    return next((place for place, step in enumerate(steps) if step.call.at >= at), len(steps))


def _share(steps: Sequence[ReplayedCall], holds: Callable[[ReplayedCall], bool]) -> float:
    return sum(map(holds, steps)) / len(steps) if steps else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
