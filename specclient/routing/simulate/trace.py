"""Traces: files of past calls as scenarios, and files of simulated ones.

A trace has the outcome of a call on the route that served it. The outcome on another route is drawn from the
outcomes of that route's calls nearest in time, of the same task if there are any. So a replay shows the
results of other policies on the same days, as far as each route was used then. The report states how many
calls a route had; with few of them, its results are uncertain.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

from specclient.errors import ConfigurationError
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.simulate.scenario import (
    PrefixCacheSpec,
    RouteChange,
    Scenario,
    SimulatedCall,
    SimulatedOutcome,
    TokenPrices,
)
from specclient.routing.simulate.trace_format import TraceCall, TraceOutcome, read_line
from specclient.types.criterion import PromptTask

__all__ = ["Trace", "dump_trace", "load_trace"]

#: The number of a route's nearest calls in time from which an unknown outcome is drawn.
_NEAREST = 15


class _ObservedOutcome(NamedTuple):
    """An observed outcome: its time, the tokens of the answer, and the outcome."""

    at: float
    tokens: int
    seen: TraceOutcome


class Trace:
    """The scenario of past calls.

    Args:
        name: for reports.
        lines: the calls, in any order.
        seed: of the random numbers.
        is_local: returns whether calls of a destination, by its name, stay on this machine, as
            :meth:`specclient.routing.destinations.DestinationRegistry.stays_local` does; None: none does.

    Raises:
        ConfigurationError: no call has an answer.
    """

    changes: Sequence[RouteChange] = ()
    per_minute: Mapping[str, float] = {}
    caches: Mapping[str, PrefixCacheSpec] = {}
    priors: Mapping[str, RoutePrior] = {}

    def __init__(
        self,
        name: str,
        lines: Iterable[TraceCall],
        *,
        seed: int = 0,
        is_local: Callable[[str], bool] | None = None,
    ) -> None:
        self.name = name
        self._seed = seed
        given = sorted(lines, key=lambda line: line.at)
        start = given[0].at if given else 0.0
        replayed = [line for line in given if line.completion_tokens]
        if not replayed:
            raise ConfigurationError(f"{name} contains no call with an answer; there is nothing to replay")
        self.calls = tuple(_simulated_call(i, line, start) for i, line in enumerate(replayed))
        self._own = [line.outcomes for line in replayed]
        self.routes = tuple(dict.fromkeys(route for line in given for route in line.outcomes))
        self.local = frozenset(
            route for route in self.routes if is_local is not None and is_local(route.partition("/")[0])
        )
        self._known: dict[tuple[str, PromptTask | None], list[_ObservedOutcome]] = defaultdict(list)
        for line in given:
            for route, seen in line.outcomes.items():
                known = _ObservedOutcome(line.at - start, line.completion_tokens or 0, seen)
                self._known[route, line.task].append(known)
                self._known[route, None].append(known)
        self.rates = {route: rates for route in self.routes if (rates := _rates(route, given)) is not None}
        self._answers = {task: mean(c.completion_tokens for c in self.calls if c.task == task)
                         for task in {c.task for c in self.calls}}  # fmt: skip

    def __repr__(self) -> str:
        return f"Trace({self.name!r}, calls={len(self.calls)}, routes={len(self.routes)})"

    def seen(self, route: str) -> int:
        """Return the number of observed outcomes of a route."""
        return len(self._known[route, None])

    def outcome(
        self,
        call: SimulatedCall,
        route: str,
        at: float,
        attempt: int = 0,
        *,
        held: int = 0,  # noqa: ARG002
    ) -> SimulatedOutcome:
        """Return the route's outcome of this call, or of one of those nearest to it."""
        own = self._own[call.index].get(route) if attempt == 0 else None
        if own is not None:
            return _outcome(own, 1.0)
        rng = Random(hash((self._seed, call.index, self.routes.index(route), attempt)))
        known = rng.choice(self._near(route, call.task, at))
        return _outcome(known.seen, call.completion_tokens / known.tokens if known.tokens else 1.0)

    def kept(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:  # noqa: ARG002
        """Return the share of the nearest calls of the route that keep this call's limits."""
        near = self._near(route, call.task, at)
        return sum(
            not known.seen.failed and call.keeps(known.seen.ttft_s, known.seen.latency_s) for known in near
        ) / len(near)

    def expected_s(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:  # noqa: ARG002
        """Return the mean seconds of the nearest calls of the route."""
        return mean(known.seen.latency_s for known in self._near(route, call.task, at))

    def expected_cached(self, route: str, held: int) -> float:  # noqa: ARG002
        """Return 0: traces have no caches of their own, their outcomes include them."""
        return 0.0

    def expected_tokens(self, call: SimulatedCall) -> float:
        """Return the mean length of answers to calls of its task."""
        return self._answers[call.task]

    def _near(self, route: str, task: PromptTask, at: float) -> list[_ObservedOutcome]:
        known = self._known.get((route, task)) or self._known[route, None]
        place = bisect_left(known, at, key=lambda each: each.at)
        low = max(min(place - _NEAREST // 2, len(known) - _NEAREST), 0)
        return known[low : low + _NEAREST]


def load_trace(file: Path, *, seed: int = 0, is_local: Callable[[str], bool] | None = None) -> Trace:
    """Read a trace; ``seed`` and ``is_local`` are those of :class:`Trace`.

    Raises:
        ConfigurationError: an invalid line, with file and number; or a file without a call.
    """

    def lines() -> Iterator[TraceCall]:
        with file.open(encoding="utf-8") as opened:
            for number, text in enumerate(opened, 1):
                if text.strip() and (line := read_line(text, f"{file}:{number}")) is not None:
                    yield line

    try:
        return Trace(str(file), lines(), seed=seed, is_local=is_local)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 text: {error}") from None


def dump_trace(ground: Scenario) -> Iterator[str]:
    """Yield the lines of a trace with the outcome of every call of a scenario on every route."""
    for call in ground.calls:
        outcomes = {}
        for route in ground.routes:
            out = ground.outcome(call, route, call.at)
            rates = ground.rates.get(route)
            paid = (
                None
                if out.failed or rates is None
                else rates.cost(call.prompt_tokens, call.completion_tokens)
            )
            facts = {
                "latency_s": round(out.latency_s, 4),
                "ttft_s": None if out.ttft_s is None else round(out.ttft_s, 4),
                "failed": out.failed or None,
                "cost_usd": None if paid is None else round(paid, 9),
                "drafted": out.drafted,
                "accepted": out.accepted,
                "steps": out.steps,
            }
            outcomes[route] = {name: value for name, value in facts.items() if value is not None}
        line = {
            "at": round(call.at, 3),
            "task": call.task,
            "prompt_tokens": call.prompt_tokens,
            "completion_tokens": call.completion_tokens,
            "max_ttft_s": call.max_ttft_s,
            "max_latency_s": call.max_latency_s,
            "outcomes": outcomes,
        }
        yield json.dumps({name: value for name, value in line.items() if value is not None}) + "\n"


def _simulated_call(index: int, line: TraceCall, start: float) -> SimulatedCall:
    return SimulatedCall(
        index=index,
        at=line.at - start,
        task=line.task,
        prompt_tokens=line.prompt_tokens,
        completion_tokens=line.completion_tokens or 0,
        max_ttft_s=line.max_ttft_s,
        max_latency_s=line.max_latency_s,
    )


def _outcome(seen: TraceOutcome, longer: float) -> SimulatedOutcome:
    """Return an outcome for an answer ``longer`` times as long; the time after its first token grows."""
    first = seen.ttft_s or 0.0
    return SimulatedOutcome(
        latency_s=seen.latency_s if seen.failed else first + (seen.latency_s - first) * longer,
        ttft_s=None if seen.failed else seen.ttft_s,
        failed=seen.failed,
        drafted=seen.drafted,
        accepted=seen.accepted,
        steps=seen.steps,
    )


def _rates(route: str, lines: Sequence[TraceCall]) -> TokenPrices | None:
    """Return prices per token fitted to the costs of calls: least squares, none below 0."""
    paid = [
        (line.prompt_tokens, line.completion_tokens or 0, seen.cost)
        for line in lines
        if (seen := line.outcomes.get(route)) is not None and seen.cost is not None
    ]
    if not paid:
        return None
    pp, pc, cc = (sum(a * b for a, b in pairs) for pairs in (
        [(p, p) for p, _, _ in paid], [(p, c) for p, c, _ in paid], [(c, c) for _, c, _ in paid],
    ))  # fmt: skip
    py, cy = sum(p * y for p, _, y in paid), sum(c * y for _, c, y in paid)
    det = pp * cc - pc * pc
    if det > 1e-9 * pp * cc:
        prompt, completion = (py * cc - cy * pc) / det, (cy * pp - py * pc) / det
        if prompt >= 0 and completion >= 0:
            return TokenPrices(prompt, completion)
    if cc and (not pp or py <= 0):
        return TokenPrices(0.0, max(cy / cc, 0.0))
    total = sum(p + c for p, c, _ in paid)
    each = sum(y for _, _, y in paid) / total if total else 0.0
    return TokenPrices(each, each)
