"""Measure what it costs to keep a policy's percentile for each kind of call, on synthetic worlds.

    python benchmarks/routing_kinds.py [--seeds 1,2,3,4,5,21,22,23] [--calls 4000] [--oracles]

For each seed, the router runs with a promise for all calls together (``percentile_per="policy"``) and for
each task. With ``--oracles`` there are three more rows, of selectors that know the state of every route but
not the outcome of a call: the cheapest that keeps 95 % over all calls, by one required probability; the
cheapest that keeps 95 % of each task, by one probability for each task; and one with a price of a miss for
each task, which takes the route whose cost plus price times the probability of a miss is least. Prints
dollars per 1,000 calls and the share of missed limits of each task, then one JSON line. The router was tuned
on the default seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from specclient.routing.simulate.baselines import GroundTruth, RateLimitWait, RouteTruth
from specclient.routing.simulate.host_caches import HeldTokens
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.policy_selector import PolicySelector, permitted_routes
from specclient.routing.simulate.replay import ReplayResult, replay_calls
from specclient.routing.simulate.scenario import SimulatedCall
from specclient.routing.simulate.world import World
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy

KINDS = tuple(kind.task for kind in MIXED_WORLD.kinds)
#: Halvings of the interval of a required probability, and of that of the logarithm of a price.
_HALVINGS, _PRICE_HALVINGS = 9, 12
_LEAST_PRICE, _GREATEST_PRICE = 1e-6, 1.0


class KindOracle:
    """Knows the true state of every route; ranks routes by a parameter of the call's task.

    Args:
        rank: returns what routes are ordered by, from the parameter and the truth about a route.
        parameters: by task.
    """

    name, patient = "oracle", False

    def __init__(
        self,
        judge: GroundTruth,
        rank: Callable[[float, RouteTruth], tuple[float, ...]],
        parameters: Mapping[PromptTask, float],
    ) -> None:
        self._judge, self._rank, self._parameters = judge, rank, parameters

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        """Return all routes below their rate limit, best first."""
        judged = self._judge.all(call, held)
        able = [each for each in judged if not free(each.route)] or judged
        return [x.route for x in sorted(able, key=lambda x: self._rank(self._parameters[call.task], x))]

    def learn(self, call: SimulatedCall, sample: Any) -> None:
        """Learn nothing."""


def by_probability(required: float, truth: RouteTruth) -> tuple[float, ...]:
    """Rank the cheapest route first that keeps the limits with the required probability."""
    return (0, truth.score, -truth.kept) if truth.kept >= required else (1, -truth.kept, truth.score)


def by_price(price: float, truth: RouteTruth) -> tuple[float, ...]:
    """Rank the route first whose cost plus price times the probability of a miss is least."""
    return (truth.score + price * (1 - truth.kept),)


def figures(played: ReplayResult) -> dict[str, Any]:
    """Return dollars per 1,000 calls, and for each task its part of them and the share of missed limits."""
    steps = played.steps
    return {
        "cost": 1000 * sum(step.cost for step in steps) / len(steps),
        "cost_by_task": {
            kind: 1000 * sum(step.cost for step in steps if step.call.task == kind) / len(steps)
            for kind in KINDS
        },
        "missed": {
            kind: fmean([not step.kept for step in steps if step.call.task == kind] or [0]) for kind in KINDS
        },
        "missed_of_all": fmean(not step.kept for step in steps),
        "unanswered": sum(step.served is None for step in steps),
    }


def cheapest(
    run: Callable[[Mapping[PromptTask, float]], dict[str, Any]],
    low: float,
    high: float,
    middle: Callable[[float, float], float],
    *,
    halvings: int = _HALVINGS,
    together: bool = False,
) -> dict[str, Any]:
    """Return the figures with the least parameters that miss at most 5 %, of each task or ``together``."""
    lows, highs = dict.fromkeys(KINDS, low), dict.fromkeys(KINDS, high)
    for _ in range(halvings):
        tried = {kind: middle(lows[kind], highs[kind]) for kind in KINDS}
        found = run(tried)
        for kind in KINDS:
            missed = found["missed_of_all"] if together else found["missed"][kind]
            (highs if missed <= 0.05 else lows)[kind] = tried[kind]
    return run(highs)


def compared(seed: int, calls: int, *, oracles: bool) -> dict[str, dict[str, Any]]:
    """Return the figures of all selectors for a seed, by name."""
    world, policy = World(MIXED_WORLD, seed, calls=calls), Policy()
    judge = GroundTruth(world, policy, permitted_routes(world, policy))
    found = {
        f"router, for each {per}": figures(
            replay_calls(world, PolicySelector(world, Policy(percentile_per=per), seed), judge)
        )
        for per in ("policy", "task")
    }
    if not oracles:
        return found

    def probability(required: Mapping[PromptTask, float]) -> dict[str, Any]:
        return figures(replay_calls(world, KindOracle(judge, by_probability, required), judge))

    def price(prices: Mapping[PromptTask, float]) -> dict[str, Any]:
        return figures(replay_calls(world, KindOracle(judge, by_price, prices), judge))

    for name, together in (("oracle, for all calls", True), ("oracle, for each task", False)):
        found[name] = cheapest(probability, 0.5, 0.9999, lambda a, b: (a + b) / 2, together=together)
    found["oracle, price for each task"] = cheapest(
        price, _LEAST_PRICE, _GREATEST_PRICE, lambda a, b: (a * b) ** 0.5, halvings=_PRICE_HALVINGS
    )
    return found


def main() -> None:
    """Run all seeds, print a row for each selector, and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3,4,5,21,22,23", help="seeds, with commas between them")
    parser.add_argument("--calls", type=int, default=4000, help="calls of a run")
    parser.add_argument("--oracles", action="store_true", help="run the oracles, too")
    args = parser.parse_args()
    runs: dict[int, dict[str, dict[str, Any]]] = {}
    for seed in map(int, args.seeds.split(",")):
        runs[seed] = compared(seed, args.calls, oracles=args.oracles)
        for name, found in runs[seed].items():
            missed = ", ".join(f"{kind} {share:.1%}" for kind, share in found["missed"].items())
            print(f"seed {seed:3} {name:29} ${found['cost']:.3f}, missed: {missed}", flush=True)
    names = list(next(iter(runs.values())))
    usual = [run[names[0]]["cost"] for run in runs.values()]
    for name in names:
        costs = [run[name]["cost"] for run in runs.values()]
        means = {kind: fmean(run[name]["missed"][kind] for run in runs.values()) for kind in KINDS}
        over = sum(costs) / sum(usual) - 1
        shares = ", ".join(f"{kind} {share:.1%}" for kind, share in means.items())
        print(f"all      {name:29} ${fmean(costs):.3f} ({over:+.1%}), missed: {shares}")
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
