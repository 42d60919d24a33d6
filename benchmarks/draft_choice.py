"""Simulate the choice among ways of drafting on published traces, beside every fixed one.

    python benchmarks/draft_choice.py DATA TRACE [TRACE …] [--calls 3000] [--seeds 2] [--save]

Each way of drafting is a route: an engine with the same target, in this process or managed. A call has the
arrival and the lengths of a trace (Azure's or Mooncake's conversations), and is a prompt of a task group of
DATA, HumanEval or Spec-Bench. The seconds of rounds and the tokens that they yield are those measured with
the bundled pair, by method, group and requests in progress (``benchmarks/draft_method_times.py``). Requests
in progress follow phases of a day and the bursts of the trace.

``auto`` is the router with ``Policy(minimize="latency")``: it starts without any call, knows the kind of each
prompt by its own classification, and learns from finished calls as it does from the ledger. ``auto, by load``
has estimates of its own for each class of requests in progress, which the router does not know. ``by group``
is the best method of each group over the whole day, ``oracle`` that of each call's group and load; neither
can be known beforehand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from draft_method_times import METHODS, OUT, grouped

from specclient.routing.choose.task_classifier import (
    BYTES_PER_TOKEN,
    PromptSummary,
    classify_task,
    summarize_prompt,
)
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.simulate.arrivals import read_arrivals
from specclient.routing.simulate.baselines import (
    FixedRoute,
    GroundTruth,
    Oracle,
    RateLimitWait,
    RouteSelector,
)
from specclient.routing.simulate.host_caches import HeldTokens
from specclient.routing.simulate.policy_selector import PolicySelector
from specclient.routing.simulate.replay import ReplayedCall, replay_calls
from specclient.routing.simulate.scenario import (
    PrefixCacheSpec,
    RouteChange,
    SimulatedCall,
    SimulatedOutcome,
    TokenPrices,
)
from specclient.types import inference_methods
from specclient.types.policy import Policy
from specclient.types.request import Request

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "draft_choice.json"
#: Requests in progress, and the share of the calls.
PHASES = {"night": (1, 0.1), "morning": (4, 0.2), "noon": (16, 0.4), "evening": (8, 0.2), "late": (2, 0.1)}
#: The spread of a call's seconds around those measured, as a standard deviation of the logarithm: that of
#: single tokens in the simulated hosts.
NOISE = 0.12
#: Longest prompt and answer, as in ``draft_lengths.py``.
PROMPT, ANSWER = 8192, 1024
#: The least requests in progress of each class of load.
LOADS = (1, 3, 9)
#: Seconds over which the bursts of the trace count as requests in progress.
WINDOW = 60.0


class MethodTimes:
    """The measured times of methods, by group and requests in progress."""

    def __init__(self, file: Path) -> None:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        self._rows = {(row["method"], row["group"], row["in_progress"]): row for row in rows}
        self.groups = list(dict.fromkeys(row["group"] for row in rows))
        self.running = sorted({row["in_progress"] for row in rows})
        self.prefill_s = {
            name: mean(row["prefill_s"] for row in rows if row["method"] == name and row["in_progress"] == 1)
            for name in METHODS
        }

    def round_s(self, name: str, group: str, running: float) -> float:
        """Return the seconds of a round, between those measured by the logarithm of the requests."""
        below = max(each for each in self.running if each <= max(running, 1))
        above = min((each for each in self.running if each >= running), default=self.running[-1])
        low, high = (self._rows[name, group, each]["round_s"] for each in (below, above))
        if below >= above:
            return float(low)
        share = math.log(running / below) / math.log(above / below)
        return float(low * (high / low) ** share)

    def yields(self, name: str, group: str, running: float) -> list[float]:
        """Return the tokens that a round gives to each of the requests measured at the nearest load."""
        near = min(self.running, key=lambda each: abs(math.log(each / max(running, 1))))
        return list(self._rows[name, group, near]["tokens_a_round"])


@dataclass
class DraftWorld:
    """The calls of a day, and their outcome on an engine of each method; a scenario of the simulator.

    Args:
        times: measured.
        texts: prompts by group, from which the router classifies calls.
        file: the trace.
        seed: of the groups of calls and of the noise.
    """

    times: MethodTimes
    texts: Mapping[str, Sequence[str]]
    file: Path
    count: int
    seed: int
    name: str = "drafts"
    routes: tuple[str, ...] = tuple(f"local/{name}" for name in METHODS)
    local: Collection[str] = ()
    rates: Mapping[str, TokenPrices] = field(default_factory=dict)
    per_minute: Mapping[str, float] = field(default_factory=dict)
    caches: Mapping[str, PrefixCacheSpec] = field(default_factory=dict)
    changes: Sequence[RouteChange] = ()
    priors: Mapping[str, RoutePrior] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        arrivals = read_arrivals(self.file, most=self.count, skip_invalid=True).calls
        made, groups, loads = [], [], []
        phases = [phase for phase, (_, share) in PHASES.items() for _ in range(round(share * len(arrivals)))]
        usual = len(arrivals) / max(arrivals[-1].at - arrivals[0].at, 1e-9) * WINDOW
        oldest = 0
        for index, (each, phase) in enumerate(zip(arrivals, phases, strict=False)):
            while arrivals[oldest].at < each.at - WINDOW:
                oldest += 1
            group = dice.choice(self.times.groups)
            prompt = min(each.prompt_tokens, PROMPT)
            call = SimulatedCall(
                index=index,
                at=each.at,
                task=classify_task(_summary(dice.choice(self.texts[group]), prompt)),
                prompt_tokens=prompt,
                completion_tokens=min(max(each.completion_tokens, 2), ANSWER),
            )
            burst = (index + 1 - oldest) / min(usual, index + 1)
            made.append(call)
            groups.append(group)
            loads.append(min(max(PHASES[phase][0] * burst, 1.0), self.times.running[-1]))
        self.calls: Sequence[SimulatedCall] = tuple(made)
        self.phases, self.groups, self.loads = phases, groups, loads

    def outcome(
        self, call: SimulatedCall, route: str, at: float, attempt: int = 0, *, held: int = 0
    ) -> SimulatedOutcome:
        """Return the outcome of a call; see :class:`specclient.routing.simulate.scenario.Scenario`."""
        del at, held
        name, group = route.partition("/")[2], self.groups[call.index]
        rng = random.Random(hash((self.seed, call.index, self.routes.index(route), attempt)))
        first = call.prompt_tokens * self.times.prefill_s[name] * math.exp(rng.gauss(0.0, NOISE))
        kept = rng.choice(self.times.yields(name, group, self.loads[call.index]))
        each = self.times.round_s(name, group, self.loads[call.index]) / kept
        whole = first + each * math.exp(rng.gauss(0.0, NOISE)) * call.completion_tokens
        return SimulatedOutcome(ttft_s=first, latency_s=whole)

    def kept(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return 1: there are no limits."""
        del call, route, at, held
        return 1.0

    def expected_s(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return the mean seconds of a call on a route."""
        del at, held
        name, group = route.partition("/")[2], self.groups[call.index]
        running = self.loads[call.index]
        each = self.times.round_s(name, group, running)
        slower = mean(1 / kept for kept in self.times.yields(name, group, running))
        first = call.prompt_tokens * self.times.prefill_s[name]
        return float(first + each * slower * call.completion_tokens)

    def expected_cached(self, route: str, held: int) -> float:
        """Return 0: prompts are not cached."""
        del route, held
        return 0.0

    def expected_tokens(self, call: SimulatedCall) -> float:
        """Return the tokens of the answer."""
        return float(call.completion_tokens)


def _summary(text: str, tokens: int) -> PromptSummary:
    """Return the summary of a prompt of so many tokens that begins and ends as a text does."""
    found = summarize_prompt(
        Request(inference_methods.CHAT, "auto", {"messages": [{"role": "user", "content": text}]})
    )
    return found._replace(size=int(tokens * BYTES_PER_TOKEN))


class ByGroup:
    """The best method of each group over the whole day, which is known only afterwards."""

    patient, name = False, "by group"

    def __init__(self, world: DraftWorld) -> None:
        sums: dict[tuple[str, str], float] = {}
        for call, route in itertools.product(world.calls, world.routes):
            key = world.groups[call.index], route
            sums[key] = sums.get(key, 0.0) + world.expected_s(call, route, call.at)
        self._world = world
        self._best = {
            group: min(world.routes, key=lambda route: sums[group, route]) for group in set(world.groups)
        }

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        """Return the method of the call's group."""
        del free, held
        return (self._best[self._world.groups[call.index]],)

    def learn(self, call: SimulatedCall, sample: CallSample) -> None:
        """Learn nothing."""


class ByLoad:
    """The router with separate estimates for each class of requests in progress, which it does not know."""

    patient, name = False, "auto, by load"

    def __init__(self, world: DraftWorld, seed: int) -> None:
        policy = Policy(minimize="latency")
        self._loads = world.loads
        self._selectors = [PolicySelector(world, policy, seed) for _ in LOADS]

    def _of(self, call: SimulatedCall) -> PolicySelector:
        running = self._loads[call.index]
        selector: PolicySelector = self._selectors[sum(running >= least for least in LOADS) - 1]
        return selector

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        """Return the routes by the estimates for the call's load."""
        return self._of(call).order(call, free, held)

    def learn(self, call: SimulatedCall, sample: CallSample) -> None:
        """Learn for the call's load."""
        self._of(call).learn(call, sample)


def means(world: DraftWorld, steps: Sequence[ReplayedCall]) -> dict[str, float]:
    """Return the mean seconds of a call by phase, of the day, and by group."""
    found: dict[str, list[float]] = {}
    for step in steps:
        index = step.call.index
        for key in (world.phases[index], "day", world.groups[index]):
            found.setdefault(key, []).append(step.latency_s)
    return {key: mean(each) for key, each in found.items()}


def ways(world: DraftWorld, seed: int) -> dict[str, RouteSelector]:
    """Return what chooses the methods, by name."""
    policy = Policy(minimize="latency")
    return {
        **{name: FixedRoute(route) for name, route in zip(METHODS, world.routes, strict=True)},
        "auto": PolicySelector(world, policy, seed),
        "auto, by load": ByLoad(world, seed),
        "by group": ByGroup(world),
        "oracle": Oracle(GroundTruth(world, policy, world.routes)),
    }


def simulated(world: DraftWorld, seed: int) -> dict[str, dict[str, float]]:
    """Return the mean seconds of a call by way, phase and group."""
    judge = GroundTruth(world, Policy(minimize="latency"), world.routes)
    return {
        name: means(world, replay_calls(world, way, judge).steps) for name, way in ways(world, seed).items()
    }


def main() -> None:
    """Simulate, print a table for each trace, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of HumanEval and Spec-Bench")
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--times", type=Path, default=OUT, help="what draft_method_times.py has written")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the figures to benchmarks/results")
    given = parser.parse_args()
    times, texts, result = MethodTimes(given.times), grouped(given.data), {}
    for file in given.traces:
        runs = [
            simulated(DraftWorld(times, texts, file, given.calls, seed), seed) for seed in range(given.seeds)
        ]
        table = {
            name: {key: mean(run[name][key] for run in runs) for key in runs[0][name]} for name in runs[0]
        }
        keys = (*PHASES, "day", *times.groups)
        print(f"{file.name}: mean seconds of a call\n{'':10}" + "".join(f"{key[:9]:>10}" for key in keys))
        for name, row in table.items():
            print(f"{name:10}" + "".join(f"{row[key]:10.3f}" for key in keys), flush=True)
        result[file.name.split(".")[0]] = table
    print(json.dumps(result))
    if given.save:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
