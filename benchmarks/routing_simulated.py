"""Measure the savings of routing in simulation: a policy, every fixed route and an oracle, for several seeds.

    python benchmarks/routing_simulated.py [--seeds 6-15] [--calls 6000] [--draw 6] [--save]

The router is the one that routes live calls. The simulation is seeded, and uses published figures if they
exist (``specclient/routing/simulate/hosts.py`` lists them). Nothing was tuned on seeds 6 to 15. Prints a
table of the targets, then one JSON line; ``--save`` writes it and four plots of one run to
``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from specclient.routing.simulate.comparison import Comparison, compare
from specclient.routing.simulate.world import WORLDS, World
from specclient.types.policy import Policy

RESULTS = Path(__file__).parent / "results"

#: The targets by name: the bound, whether it is an upper bound, and the format of values.
TARGETS = {
    "cost over the oracle's": (0.10, True, "{:+.1%}"),
    "cost under the best fixed route's": (0.20, False, "{:.1%}"),
    "limits missed beyond the 5 % allowed": (0.02, True, "{:.1%}"),
    "calls until choices are good again": (50, True, "{:.0f}"),
}

#: Maximum decrease of the share of good choices after a change, relative to later, that counts as recovered.
BACK = 0.05


def main() -> None:
    """Run all seeds, print their results and the targets, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--world", default="mixed", choices=sorted(WORLDS), help="the simulated hosts and calls"
    )
    parser.add_argument(
        "--seeds", type=_seeds, default=_seeds("6-15"), help="a seed, or a range such as 6-15"
    )
    parser.add_argument(
        "--calls", type=int, default=None, help="calls per run; by default those of the world"
    )
    parser.add_argument(
        "--draw", type=int, default=None, help="seed of the run to plot; the first one by default"
    )
    parser.add_argument(
        "--save", action="store_true", help="save the figures and plots to benchmarks/results"
    )
    args = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(partial(figures, args.world, calls=args.calls), args.seeds))
    for run in runs:
        print(_line(run))
    result = {
        "world": args.world,
        "seeds": args.seeds,
        "targets": _targets(runs),
        "after_changes": _after(runs),
        "runs": runs,
    }
    print()
    for name, target in result["targets"].items():
        form = TARGETS[name][2]
        words = " ".join(f"{key} {form.format(value)}" for key, value in target.items() if key != "met")
        print(f"{name:38} {words}{'' if target['met'] else '   MISSED'}")
    if result["after_changes"]["changes"]:
        print("\n" + _recovery(result["after_changes"]))
    print(f"\n{len(runs)} runs in {time.perf_counter() - began:.0f} s\n")
    print(json.dumps(result))
    if args.save:
        from routing_plots import draw  # noqa: PLC0415 - imports matplotlib

        (RESULTS / "routing.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        world = World(WORLDS[args.world], args.draw or args.seeds[0], calls=args.calls)
        for file in draw(world, compare(world, Policy(), seed=world.seed), RESULTS):
            print(file)


def figures(name: str, seed: int, *, calls: int | None = None) -> dict[str, Any]:
    """Return the figures of one seed; costs and regret are dollars per 1,000 answered calls."""
    world = World(WORLDS[name], seed, calls=calls)
    found = compare(world, Policy(), seed=seed)
    return {
        "seed": seed,
        "calls": len(world.calls),
        "cost": 1000 * found.policy.cost,
        "violations": found.policy.violations,
        "p50_s": found.policy.p50_s,
        "p95_s": found.policy.p95_s,
        "regret": 1000 * found.policy.regret,
        "good": found.policy.good,
        "unanswered": found.policy.calls - found.policy.answered,
        "oracle": _brief(found.oracle),
        "oracle_as_often": _brief(found.equal),
        "clairvoyant": _brief(found.clairvoyant),
        "fixed": {summary.name: _brief(summary) for summary in found.fixed},
        "best_fixed": found.best_fixed.name,
        "over_oracle": found.over_oracle,
        "over_oracle_asked_alike": found.policy.cost / found.oracle.cost - 1,
        "under_fixed": found.under_fixed,
        "over_limit": found.policy.over,
        "settled": _settled(found),
    }


def _settled(found: Comparison) -> list[dict[str, Any]]:
    return [
        {"what": change.what, "route": change.route, "calls": change.calls, "rarer": change.rarer}
        for change in found.settled
    ]


def _brief(summary: Any) -> dict[str, float]:
    return {"cost": 1000 * summary.cost, "violations": summary.violations, "p95_s": summary.p95_s}


def _targets(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the median and the worst value over the seeds, for each target."""
    # A change without recovery before the next change counts as the worst value.
    changes = [change for run in runs for change in run["settled"]]
    counts = [change["calls"] if change["calls"] is not None else 1e9 for change in changes]
    values: dict[str, list[float]] = {
        "cost over the oracle's": [run["over_oracle"] for run in runs],
        "cost under the best fixed route's": [run["under_fixed"] for run in runs],
        "limits missed beyond the 5 % allowed": [run["over_limit"] for run in runs],
        "calls until choices are good again": counts,
    }
    targets = {}
    for name, seeds in values.items():
        if not seeds:
            continue  # too few calls for a change
        wanted, upper, _ = TARGETS[name]
        middle, worst = median(seeds), (max(seeds) if upper else min(seeds))
        targets[name] = {
            "wanted": wanted,
            "median": middle,
            "worst": worst,
            "met": middle <= wanted if upper else middle >= wanted,
        }
    return targets


def _after(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean decrease of the share of good choices after a change, relative to later."""
    decreases = [change["rarer"] for run in runs for change in run["settled"] if change["rarer"]]
    if not decreases:
        return {"changes": 0, "rarer": [], "calls": None}
    rarer = [sum(ten) / len(ten) for ten in zip(*decreases, strict=True)]
    late = next((i for i in range(len(rarer)) if all(gap <= BACK for gap in rarer[i:])), None)
    return {"changes": len(decreases), "rarer": rarer, "calls": None if late is None else 10 * late}


def _recovery(after: dict[str, Any]) -> str:
    tens = ", ".join(f"{gap:.0%}" for gap in after["rarer"])
    back = "not within 50 calls" if after["calls"] is None else f"after {after['calls']} calls"
    return (
        f"{after['changes']} changes followed by 100 calls: the share of good choices is lower by {tens} in "
        f"each ten calls after the change; recovered to within {BACK:.0%} {back}"
    )


def _line(run: dict[str, Any]) -> str:
    settled = [change["calls"] for change in run["settled"]]
    return (
        f"seed {run['seed']:3}: ${run['cost']:.3f} per 1,000 calls, "
        f"{run['over_oracle']:+.1%} over the oracle ("
        f"{run['over_oracle_asked_alike']:+.1%} at the same percentile), {run['under_fixed']:.1%} under "
        f"{run['best_fixed'].split('/')[0]}, {run['violations']:.1%} missed "
        f"(oracle {run['oracle']['violations']:.1%}), settled after {settled}"
    )


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    main()
