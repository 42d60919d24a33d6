"""Simulated worlds: the calls that arrive, and the outcome of each on every host, from a seed.

Outcomes depend only on the seed, the call, the route and the attempt, so all policies meet the same world.
Only rate limits depend on earlier requests; the replay counts those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Literal

from specclient.routing.learn.priors import RoutePrior
from specclient.routing.simulate.arrivals import Arrivals
from specclient.routing.simulate.hosts import (
    ACCEPTANCE_BY_TASK,
    DRAFT_DEPTH,
    LOAD_CURVE,
    MIXED_WORLD,
    CallKind,
    SimulatedHost,
    WorldSpec,
)
from specclient.routing.simulate.noise import LatencyNoise, normal_points
from specclient.routing.simulate.scenario import RouteChange, SimulatedCall, SimulatedOutcome, TokenPrices
from specclient.types.criterion import PromptTask

__all__ = ["WORLDS", "Incident", "World", "crowded_speed", "drafting_speedup"]

WORLDS = {spec.name: spec for spec in (MIXED_WORLD,)}

#: Noise of single calls around their host's median: to the first token, and per further token.
FIRST_TOKEN_NOISE = LatencyNoise(0.30, tail=0.02, tail_median=4.0, tail_spread=0.5)
PER_TOKEN_NOISE = LatencyNoise(0.12, tail=0.01, tail_median=2.5, tail_spread=0.4)
#: The cost of a draft pass in target passes; the cost that a drafted token adds to a verification on a full
#: host.
_DRAFT_COST, _FULL_COST = 0.05, 0.54
#: Median seconds of outages and of slow periods, and the range of the factor by which the latter slow a host.
_OUTAGE_S, _SLOW_S, _SLOWER = 300.0, 900.0, (2.5, 6.0)
_STEP_S = 15.0
#: The error of published speeds, as a standard deviation of the logarithm.
_PUBLISHED_SPREAD = 0.25
_TASK_POINTS = normal_points(12)
_FIRST_POINTS = 12


@dataclass(frozen=True, slots=True)
class Incident:
    """A period in which a host is down, or abruptly slower by a factor."""

    route: str
    kind: Literal["outage", "slowdown"]
    start: float
    end: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """A host's medians at one moment for one task: seconds to the first token, and per further token."""

    ttft_s: float
    token_s: float
    down: bool


class World:
    """One seeded run of a specification.

    Args:
        spec: the hosts and kinds of calls; ``calls`` overrides the number of calls.
        arrivals: the calls of a trace, instead of drawn ones. They have the limits of time of the
            specification's calls of their task. Prompt caches keep blocks for as long in the trace's own
            time, so that a session finds what it would find if the trace were not stretched.
    """

    local: tuple[str, ...] = ()

    def __init__(
        self, spec: WorldSpec, seed: int, *, calls: int | None = None, arrivals: Arrivals | None = None
    ) -> None:
        self.spec = spec if calls is None else replace(spec, calls=calls)
        self.seed = seed
        self.name = spec.name if arrivals is None else f"{spec.name}, calls of {arrivals.name}"
        self._hosts = {host.route: host for host in spec.hosts}
        self._kinds = {kind.task: kind for kind in spec.kinds}
        self.routes = tuple(self._hosts)
        self.rates = {host.route: _prices(host) for host in spec.hosts}
        stretch = 1.0 if arrivals is None else arrivals.stretch
        self.caches = {
            host.route: replace(host.cache, lifetime_s=host.cache.lifetime_s * stretch)
            for host in spec.hosts
            if host.cache is not None
        }
        self.priors = {host.route: _published(host, seed) for host in spec.hosts}
        self.per_minute = {h.route: h.per_minute for h in spec.hosts if h.per_minute is not None}
        self.calls = self._drawn_calls() if arrivals is None else self._given_calls(arrivals)
        self._traced = arrivals is not None
        self._end = self.calls[-1].at + 3600 if self.calls else 0.0
        self.incidents = tuple(s for host in spec.hosts for s in self._incidents(host))
        self._incidents_by_route = {
            route: [s for s in self.incidents if s.route == route] for route in self.routes
        }
        self._loads = {host.route: self._load_of(host) for host in spec.hosts}
        self._wander = {host.route: self._drift_of(host) for host in spec.hosts}

    def __repr__(self) -> str:
        return f"World({self.name!r}, seed={self.seed}, calls={len(self.calls)})"

    @cached_property
    def changes(self) -> tuple[RouteChange, ...]:
        """Every start and end of an incident within the run, in order."""
        last = self.calls[-1].at if self.calls else 0.0
        found = [
            RouteChange(at, incident.route, what)
            for incident in self.incidents
            for at, what in ((incident.start, incident.kind), (incident.end, f"end of {incident.kind}"))
            if 0 < at < last
        ]
        return tuple(sorted(found, key=lambda change: change.at))

    def outcome(
        self, call: SimulatedCall, route: str, at: float, attempt: int = 0, *, held: int = 0
    ) -> SimulatedOutcome:
        """Return the outcome of a call that reaches a route at ``at`` seconds."""
        rng = Random(hash((self.seed, call.index, self.routes.index(route), attempt)))
        first, each, luck = FIRST_TOKEN_NOISE.draw(rng), PER_TOKEN_NOISE.draw(rng), rng.random()
        cached = held if held and rng.random() < self.caches[route].hits else 0
        pace = self.pace(route, call.task, call.prompt_tokens - cached, at)
        if pace.down or luck < self._hosts[route].failures:
            return SimulatedOutcome(failed=True, latency_s=0.5 * first)
        ttft = pace.ttft_s * first
        host = self._hosts[route]
        steps = (
            round(call.completion_tokens / _expected(ACCEPTANCE_BY_TASK[call.task])) if host.drafts else None
        )
        return SimulatedOutcome(
            ttft_s=ttft,
            latency_s=ttft + pace.token_s * each * call.completion_tokens,
            drafted=None if steps is None else DRAFT_DEPTH * steps,
            accepted=None if steps is None else max(call.completion_tokens - steps, 0),
            steps=steps,
            cached=cached,
        )

    def kept(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return the probability that a route keeps a call's limits, whatever the answer's length."""
        kept = self._kept(call, route, at, call.prompt_tokens)
        if held:
            hits = self.caches[route].hits
            kept += hits * (self._kept(call, route, at, call.prompt_tokens - held) - kept)
        return kept

    def _kept(self, call: SimulatedCall, route: str, at: float, prompt_tokens: int) -> float:
        pace = self.pace(route, call.task, prompt_tokens, at)
        if pace.down:
            return 0.0
        in_time = 1.0 if call.max_ttft_s is None else FIRST_TOKEN_NOISE.cdf(call.max_ttft_s / pace.ttft_s)
        if call.max_latency_s is not None:
            left = [
                call.max_latency_s
                - pace.ttft_s * FIRST_TOKEN_NOISE.quantile(in_time * (i + 0.5) / _FIRST_POINTS)
                for i in range(_FIRST_POINTS)
            ]
            answers = [pace.token_s * tokens for tokens in self._answers[call.task]]
            hits = sum(PER_TOKEN_NOISE.cdf(s / answer) for s in left if s > 0 for answer in answers)
            in_time *= hits / (len(left) * len(answers))
        return in_time * (1 - self._hosts[route].failures)

    def expected_s(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return the mean seconds of a call on a route, infinite while it is down."""
        cached = self.expected_cached(route, held)
        pace = self.pace(route, call.task, round(call.prompt_tokens - cached), at)
        if pace.down:
            return math.inf
        return (
            pace.ttft_s * FIRST_TOKEN_NOISE.mean
            + pace.token_s * PER_TOKEN_NOISE.mean * self.expected_tokens(call)
        )

    def expected_cached(self, route: str, held: int) -> float:
        """Return the mean number of cached tokens if the route's cache has ``held`` tokens of a prompt."""
        return held * self.caches[route].hits if held else 0.0

    def expected_tokens(self, call: SimulatedCall) -> float:
        """Return the mean length of an answer to a call of its kind."""
        if self._traced:
            return fmean(self._answers[call.task])
        kind = self._kinds[call.task]
        return kind.answer * math.exp(kind.answer_spread**2 / 2)

    def pace(self, route: str, task: PromptTask, prompt_tokens: int, at: float) -> HostSpeed:
        """Return a route's medians at a moment."""
        host, step = self._hosts[route], int(at / _STEP_S)
        loads, wander = self._loads[route], self._wander[route]
        load = loads[min(step, len(loads) - 1)]
        drift = wander[min(step, len(wander) - 1)]
        wait, speed = _against_usual(host, load)
        speed /= drift
        if host.drafts:
            speed *= drafting_speedup(ACCEPTANCE_BY_TASK[task], load)
        slower, down = 1.0, False
        for incident in self._incidents_by_route[route]:
            if incident.start <= at < incident.end:
                slower, down = slower * incident.factor, down or incident.kind == "outage"
        ttft = max(host.ttft_s * drift + wait, 0.05) + prompt_tokens / host.prefill_s
        return HostSpeed(ttft * slower, slower / (host.tokens_s * speed), down)

    @cached_property
    def _answers(self) -> dict[PromptTask, list[float]]:
        """Equally likely lengths of an answer, by task: of the trace, or as the specification has them."""
        if self._traced:
            lengths: dict[PromptTask, list[float]] = {}
            for call in self.calls:
                lengths.setdefault(call.task, []).append(float(call.completion_tokens))
            return {task: _representative(found) for task, found in lengths.items()}
        return {
            kind.task: [kind.answer * math.exp(kind.answer_spread * point) for point in _TASK_POINTS]
            for kind in self.spec.kinds
        }

    def _given_calls(self, arrivals: Arrivals) -> tuple[SimulatedCall, ...]:
        calls = []
        for index, each in enumerate(arrivals.calls):
            kind = self._kinds.get(each.task)
            call = SimulatedCall(
                index=index,
                at=each.at,
                task=each.task,
                prompt_tokens=each.prompt_tokens,
                completion_tokens=each.completion_tokens,
                max_ttft_s=None if kind is None else kind.max_ttft_s,
                max_latency_s=None if kind is None else kind.max_latency_s,
                session=each.session,
                prefix=each.prefix,
            )
            calls.append(call)
        return tuple(calls)

    def _drawn_calls(self) -> tuple[SimulatedCall, ...]:
        spec, rng = self.spec, Random(f"{self.seed}:arrivals")
        shape = 1 / spec.burst**2
        tasks, shares = [k.task for k in spec.kinds], [k.share for k in spec.kinds]
        calls, at = [], 0.0
        for index in range(spec.calls):
            busy = 1 + 0.6 * math.sin(2 * math.pi * at / spec.day_s)
            at += rng.gammavariate(shape, 60 / (spec.per_minute * busy) / shape)
            kind = self._kinds[rng.choices(tasks, shares)[0]]
            calls.append(_simulated_call(index, at, kind, rng))
        return tuple(calls)

    def _incidents(self, host: SimulatedHost) -> list[Incident]:
        """Draw a host's incidents; a quarter are outages."""
        rng, incidents, at = Random(f"{self.seed}:troubles:{host.route}"), [], 0.0
        while host.troubles:
            at += rng.expovariate(host.troubles / 3600)
            if at >= self._end:
                break
            out = rng.random() < 0.25
            lasting = (_OUTAGE_S if out else _SLOW_S) * math.exp(rng.gauss(0.0, 0.6))
            factor = 1.0 if out else math.exp(rng.uniform(*map(math.log, _SLOWER)))
            incidents.append(Incident(host.route, "outage" if out else "slowdown", at, at + lasting, factor))
            at += lasting
        return incidents

    def _load_of(self, host: SimulatedHost) -> list[float]:
        """Return a host's load, step by step: the time of day, and noise."""
        rng, load, extra = Random(f"{self.seed}:load:{host.route}"), [], 0.0
        for step in range(int(self._end / _STEP_S) + 1):
            extra = 0.98 * extra + rng.gauss(0.0, 0.008)
            hour = math.sin(2 * math.pi * step * _STEP_S / self.spec.day_s)
            load.append(min(max(host.load + host.swing * hour + extra, 0.0), 0.97))
        return load

    def _drift_of(self, host: SimulatedHost) -> list[float]:
        """Return the factor on a host's durations, step by step: a slow mean-reverting walk around 1."""
        rng, walk, at = Random(f"{self.seed}:drift:{host.route}"), [], 0.0
        each = self.spec.drift * math.sqrt(_STEP_S / 3600)
        for _ in range(int(self._end / _STEP_S) + 1):
            at = 0.999 * at + rng.gauss(0.0, each)
            walk.append(math.exp(at))
        return walk


def _published(host: SimulatedHost, seed: int) -> RoutePrior:
    """Return what is published of a host: its usual speed, off by a quarter either way."""
    rng = Random(f"{seed}:published:{host.route}")
    first, each, prompt = (math.exp(rng.gauss(0.0, _PUBLISHED_SPREAD)) for _ in range(3))
    speed = host.tokens_s * (drafting_speedup(ACCEPTANCE_BY_TASK["chat"], host.load) if host.drafts else 1.0)
    return RoutePrior(host.ttft_s * first, each / speed, prompt_token_s=prompt / host.prefill_s, calls=2)


def _prices(host: SimulatedHost) -> TokenPrices:
    cached = None if host.cache is None else host.input * host.cache.price * 1e-6
    return TokenPrices(host.input * 1e-6, host.output * 1e-6, cached)


def _representative(lengths: list[float]) -> list[float]:
    """Return the means of as many equal parts of the ordered lengths as a normal distribution has points."""
    ordered, parts = sorted(lengths), min(len(_TASK_POINTS), len(lengths))
    cuts = [len(ordered) * k // parts for k in range(parts + 1)]
    return [fmean(ordered[low:high]) for low, high in pairwise(cuts)]


def _simulated_call(index: int, at: float, kind: CallKind, rng: Random) -> SimulatedCall:
    return SimulatedCall(
        index=index,
        at=at,
        task=kind.task,
        prompt_tokens=max(round(kind.prompt * math.exp(rng.gauss(0.0, kind.prompt_spread))), 1),
        completion_tokens=max(round(kind.answer * math.exp(rng.gauss(0.0, kind.answer_spread))), 1),
        max_ttft_s=kind.max_ttft_s,
        max_latency_s=kind.max_latency_s,
    )


def _against_usual(host: SimulatedHost, load: float) -> tuple[float, float]:
    """Return the added wait in seconds and the relative speed, compared to the host's usual load."""
    if not host.crowded:
        return 0.3 * max(load - host.load, 0.0), 1.0
    (wait, speed), (usual_wait, usual_speed) = crowded_speed(load), crowded_speed(host.load)
    return wait - usual_wait, speed / usual_speed


def _expected(accepted: float) -> float:
    """Return the mean tokens per pass of the target: (1 − α^(K+1)) / (1 − α)."""
    return (1 - accepted ** (DRAFT_DEPTH + 1)) / (1 - accepted)


def drafting_speedup(accepted: float, load: float) -> float:
    """Return the speedup from drafting at a load; below 1 on a full host."""
    return _expected(accepted) / (1 + DRAFT_DEPTH * (_DRAFT_COST + _FULL_COST * load**4))


def crowded_speed(load: float) -> tuple[float, float]:
    """Return the seconds that a request waits on a GPU host at a load, and its tokens per second."""
    at = 256.0**load
    for (low, wait, speed), (high, more, slow) in pairwise(LOAD_CURVE):
        if at <= high:
            part = math.log(at / low) / math.log(high / low)
            return wait + (more - wait) * part, speed + (slow - speed) * part
    return LOAD_CURVE[-1][1:]
