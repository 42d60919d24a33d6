"""Turn rows of hosts and a seed into a world: calls that arrive, and what each host would do with every one.

Everything is drawn from the seed, the call, the route and the try alone, so that all policies meet the same
world, whatever they choose. Only requests counted against a rate limit depend on what was sent before; those
are counted by the replay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Literal

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
from specclient.types.route import PromptTask

__all__ = ["WORLDS", "Incident", "World"]

WORLDS = {spec.name: spec for spec in (MIXED_WORLD,)}

#: Noise of single calls around their host's median, to the first token and for each further one.
FIRST_TOKEN_NOISE = LatencyNoise(0.30, tail=0.02, far=4.0, wide=0.5)
PER_TOKEN_NOISE = LatencyNoise(0.12, tail=0.01, far=2.5, wide=0.4)
#: A draft pass in passes of the target; what each drafted token adds to a verification on a full host.
_DRAFT_COST, _FULL_COST = 0.05, 0.54
#: Half of outages last less than this, half of slow spells less than that; by how much those slow.
_OUTAGE_S, _SLOW_S, _SLOWER = 300.0, 900.0, (2.5, 6.0)
_STEP_S = 15.0
_TASK_POINTS = normal_points(12)
_FIRST_POINTS = 12


@dataclass(frozen=True, slots=True)
class Incident:
    """A time in which a host is out, or slower by a factor from one moment to the next."""

    route: str
    kind: Literal["outage", "slowdown"]
    start: float
    end: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """A host's medians at one moment for one task: seconds to the first token, for each further one."""

    ttft_s: float
    token_s: float
    down: bool


class World:
    """One seeded run of a spec.

    Args:
        spec: the rows; ``calls`` overrides their number.
    """

    def __init__(self, spec: WorldSpec, seed: int, *, calls: int | None = None) -> None:
        self.spec = spec if calls is None else replace(spec, calls=calls)
        self.seed = seed
        self.name = spec.name
        self._hosts = {host.route: host for host in spec.hosts}
        self._kinds = {kind.task: kind for kind in spec.kinds}
        self.routes = tuple(self._hosts)
        self.rates = {host.route: TokenPrices(host.input * 1e-6, host.output * 1e-6) for host in spec.hosts}
        self.per_minute = {h.route: h.per_minute for h in spec.hosts if h.per_minute is not None}
        self.calls = self._arrivals()
        self._end = self.calls[-1].at + 3600 if self.calls else 0.0
        self.spells = tuple(s for host in spec.hosts for s in self._troubles(host))
        self._spells = {route: [s for s in self.spells if s.route == route] for route in self.routes}
        self._loads = {host.route: self._load_of(host) for host in spec.hosts}
        self._wander = {host.route: self._drift_of(host) for host in spec.hosts}

    def __repr__(self) -> str:
        return f"World({self.name!r}, seed={self.seed}, calls={len(self.calls)})"

    @cached_property
    def changes(self) -> tuple[RouteChange, ...]:
        """Every beginning and end of a spell within the run, in order."""
        last = self.calls[-1].at if self.calls else 0.0
        found = [
            RouteChange(at, spell.route, what)
            for spell in self.spells
            for at, what in ((spell.start, spell.kind), (spell.end, f"end of {spell.kind}"))
            if 0 < at < last
        ]
        return tuple(sorted(found, key=lambda change: change.at))

    def outcome(self, call: SimulatedCall, route: str, at: float, attempt: int = 0) -> SimulatedOutcome:
        """Return what a route does with a call that reaches it at ``at`` seconds."""
        rng = Random(hash((self.seed, call.index, self.routes.index(route), attempt)))
        first, each, luck = FIRST_TOKEN_NOISE.draw(rng), PER_TOKEN_NOISE.draw(rng), rng.random()
        pace = self.pace(route, call.task, call.prompt_tokens, at)
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
        )

    def kept(self, call: SimulatedCall, route: str, at: float) -> float:
        """Return how likely a route keeps the limits of a call, its noise and the answer's length unknown."""
        pace = self.pace(route, call.task, call.prompt_tokens, at)
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

    def expected_s(self, call: SimulatedCall, route: str, at: float) -> float:
        """Return the mean seconds of a call on a route, infinite while that is out."""
        pace = self.pace(route, call.task, call.prompt_tokens, at)
        if pace.down:
            return math.inf
        return (
            pace.ttft_s * FIRST_TOKEN_NOISE.mean
            + pace.token_s * PER_TOKEN_NOISE.mean * self.expected_tokens(call)
        )

    def expected_tokens(self, call: SimulatedCall) -> float:
        """Return the mean length of an answer to a call of its kind."""
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
            speed *= _gain(ACCEPTANCE_BY_TASK[task], load)
        slower, down = 1.0, False
        for spell in self._spells[route]:
            if spell.start <= at < spell.end:
                slower, down = slower * spell.factor, down or spell.kind == "outage"
        ttft = max(host.ttft_s * drift + wait, 0.05) + prompt_tokens / host.prefill_s
        return HostSpeed(ttft * slower, slower / (host.tokens_s * speed), down)

    @cached_property
    def _answers(self) -> dict[PromptTask, list[float]]:
        """Equally likely lengths of an answer, by task."""
        return {
            kind.task: [kind.answer * math.exp(kind.answer_spread * point) for point in _TASK_POINTS]
            for kind in self.spec.kinds
        }

    def _arrivals(self) -> tuple[SimulatedCall, ...]:
        spec, rng = self.spec, Random(f"{self.seed}:arrivals")
        shape = 1 / spec.burst**2
        tasks, shares = [k.task for k in spec.kinds], [k.share for k in spec.kinds]
        calls, at = [], 0.0
        for index in range(spec.calls):
            busy = 1 + 0.6 * math.sin(2 * math.pi * at / spec.day_s)
            at += rng.gammavariate(shape, 60 / (spec.per_minute * busy) / shape)
            kind = self._kinds[rng.choices(tasks, shares)[0]]
            calls.append(_asked(index, at, kind, rng))
        return tuple(calls)

    def _troubles(self, host: SimulatedHost) -> list[Incident]:
        """Draw a host's outages and slow spells: a quarter are outages."""
        rng, spells, at = Random(f"{self.seed}:troubles:{host.route}"), [], 0.0
        while host.troubles:
            at += rng.expovariate(host.troubles / 3600)
            if at >= self._end:
                break
            out = rng.random() < 0.25
            lasting = (_OUTAGE_S if out else _SLOW_S) * math.exp(rng.gauss(0.0, 0.6))
            factor = 1.0 if out else math.exp(rng.uniform(*map(math.log, _SLOWER)))
            spells.append(Incident(host.route, "outage" if out else "slowdown", at, at + lasting, factor))
            at += lasting
        return spells

    def _load_of(self, host: SimulatedHost) -> list[float]:
        """Return how full a host is, step by step: the hours of its day, and what they do not explain."""
        rng, load, extra = Random(f"{self.seed}:load:{host.route}"), [], 0.0
        for step in range(int(self._end / _STEP_S) + 1):
            extra = 0.98 * extra + rng.gauss(0.0, 0.008)
            hour = math.sin(2 * math.pi * step * _STEP_S / self.spec.day_s)
            load.append(min(max(host.load + host.swing * hour + extra, 0.0), 0.97))
        return load

    def _drift_of(self, host: SimulatedHost) -> list[float]:
        """Return the factor on a host's durations, step by step: a slow walk that is drawn back to 1."""
        rng, walk, at = Random(f"{self.seed}:drift:{host.route}"), [], 0.0
        each = self.spec.drift * math.sqrt(_STEP_S / 3600)
        for _ in range(int(self._end / _STEP_S) + 1):
            at = 0.999 * at + rng.gauss(0.0, each)
            walk.append(math.exp(at))
        return walk


def _asked(index: int, at: float, kind: CallKind, rng: Random) -> SimulatedCall:
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
    """Return the seconds a request waits longer than at the host's usual load, and its speed against that."""
    if not host.crowded:
        return 0.3 * max(load - host.load, 0.0), 1.0
    (wait, speed), (usual_wait, usual_speed) = _crowd(load), _crowd(host.load)
    return wait - usual_wait, speed / usual_speed


def _expected(accepted: float) -> float:
    """Return the tokens that a pass of the target gives: (1 − α^(K+1)) / (1 − α)."""
    return (1 - accepted ** (DRAFT_DEPTH + 1)) / (1 - accepted)


def _gain(accepted: float, load: float) -> float:
    """Return how many times faster drafts make a host; below 1 where it is full."""
    return _expected(accepted) / (1 + DRAFT_DEPTH * (_DRAFT_COST + _FULL_COST * load**4))


def _crowd(load: float) -> tuple[float, float]:
    """Return the seconds a request waits on a GPU host at a load, and its tokens a second."""
    at = 256.0**load
    for (low, wait, speed), (high, more, slow) in pairwise(LOAD_CURVE):
        if at <= high:
            part = math.log(at / low) / math.log(high / low)
            return wait + (more - wait) * part, speed + (slow - speed) * part
    return LOAD_CURVE[-1][1:]
