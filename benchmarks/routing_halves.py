"""Measure routing on the seeds and traces that it was tuned on, and on others, side by side.

    python benchmarks/routing_halves.py [--azure FILE] [--mooncake FILE] [--save] [--draw FOLDER]

The traces are Azure's LLM inference trace (conversations) and Mooncake's conversation trace, as published.
The router was tuned on the first half of each and on some seeds of the synthetic world; the second halves and
20 other seeds were run once, for the table. Prints a row for each run, the table, and one JSON line;
``--save`` writes it to ``benchmarks/results/routing_halves.json``. ``--draw`` draws one run of all of each
trace instead.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from specclient.routing.simulate.arrivals import read_arrivals
from specclient.routing.simulate.comparison import Comparison, compare
from specclient.routing.simulate.hosts import MIXED_WORLD
from specclient.routing.simulate.world import World
from specclient.types.policy import Policy

RESULTS = Path(__file__).parent / "results" / "routing_halves.json"

#: Seeds of the synthetic world, and of the hosts that serve a trace.
TUNED_SEEDS, FRESH_SEEDS = (1, 2, 4, 23), tuple(range(101, 121))
TUNED_HOSTS, FRESH_HOSTS = (1, 2), (101, 102, 103)
#: By trace: the factor on its times, and the first call and the number of calls of each half.
HALVES = {"azure": (20.0, (0, 6000), (6000, 6000)), "mooncake": (12.0, (0, 3000), (3000, 3000))}
#: The most calls of a drawn trace: at the rate of the hosts, all of either trace lasts a day or less.
DAY_CALLS = 20_000
#: The calls at the start that are compared by themselves.
FIRST = 1000


@dataclass(frozen=True)
class Run:
    """One run: a world with drawn calls, or with those of a part of a trace."""

    half: str
    source: str
    seed: int
    calls: int
    file: Path | None = None
    stretch: float = 1.0
    skip: int = 0


def runs(files: dict[str, Path | None], calls: int) -> Iterator[Run]:
    """Yield all runs, those of the tuned half first."""
    for half, seeds in (("tuned", TUNED_SEEDS), ("fresh", FRESH_SEEDS)):
        hosts = TUNED_HOSTS if half == "tuned" else FRESH_HOSTS
        for source, (stretch, *parts) in HALVES.items():
            file = files[source]
            skip, count = parts[half == "fresh"]
            if file is not None:
                yield from (Run(half, source, seed, count, file, stretch, skip) for seed in hosts)
        yield from (Run(half, "synthetic", seed, calls) for seed in seeds)


def compared(run: Run) -> tuple[World, Comparison]:
    """Return the world of a run, and its comparison."""
    if run.file is None:
        world = World(MIXED_WORLD, run.seed, calls=run.calls)
    else:
        arrivals = read_arrivals(
            run.file, stretch=run.stretch, skip=run.skip, most=run.calls, skip_invalid=True
        )
        world = World(MIXED_WORLD, run.seed, arrivals=arrivals)
    return world, compare(world, Policy(), seed=run.seed, first=FIRST)


def figures(run: Run) -> dict[str, Any]:
    """Return the figures of one run; costs are dollars per 1,000 answered calls."""
    _, found = compared(run)
    assert found.at_first is not None
    mine, equal = found.at_first
    return {
        "half": run.half,
        "source": run.source,
        "seed": run.seed,
        "calls": found.policy.calls,
        "cost": 1000 * found.policy.cost,
        "over_oracle": found.over_oracle,
        "first_over_oracle": mine.cost / equal.cost - 1,
        "under_fixed": found.under_fixed,
        "missed": found.policy.violations,
        "missed_by_task": dict(found.policy.by_task),
        "oracle_missed": found.oracle.violations,
        "oracle_cost": 1000 * found.oracle.cost,
        "unanswered": found.policy.calls - found.policy.answered,
        "settled": [change.calls for change in found.settled],
    }


def row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median and the worst values of some runs."""
    counts = [float("inf") if calls is None else calls for each in rows for calls in each["settled"]]
    return {
        "runs": len(rows),
        "cost": median(each["cost"] for each in rows),
        "over_oracle": [median(e["over_oracle"] for e in rows), max(e["over_oracle"] for e in rows)],
        "first_over_oracle": [
            median(e["first_over_oracle"] for e in rows),
            max(e["first_over_oracle"] for e in rows),
        ],
        "under_fixed": [median(e["under_fixed"] for e in rows), min(e["under_fixed"] for e in rows)],
        "missed": [median(e["missed"] for e in rows), max(e["missed"] for e in rows)],
        "unanswered": sum(each["unanswered"] for each in rows),
        "settled_within_30": None if not counts else sum(calls <= 30 for calls in counts) / len(counts),
    }


def draw_days(files: dict[str, Path | None], folder: Path) -> None:
    """Draw a day of each trace (all of it, where it is shorter), on the hosts of the first tuned seed."""
    from routing_plots import draw_day  # noqa: PLC0415 - imports matplotlib

    for source, file in files.items():
        if file is not None:
            stretch = HALVES[source][0]
            world, found = compared(Run("tuned", source, TUNED_HOSTS[0], DAY_CALLS, file, stretch))
            calls = len(world.calls)
            title = f"{source.capitalize()}'s trace: {calls:,} calls, times stretched {stretch:g} times"
            draw_day(world, found, title, folder / f"routing_{source}.png")


def main() -> None:
    """Run both halves, print their results side by side, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--azure", type=Path, help="Azure's trace, CSV, also compressed by gzip")
    parser.add_argument("--mooncake", type=Path, help="Mooncake's trace, JSON lines, also compressed by gzip")
    parser.add_argument("--calls", type=int, default=4000, help="calls of a run of the synthetic world")
    parser.add_argument("--save", action="store_true", help="save the figures to benchmarks/results")
    parser.add_argument("--draw", type=Path, help="only draw a run of all of each trace, into a folder")
    args = parser.parse_args()
    if args.draw is not None:
        draw_days({"azure": args.azure, "mooncake": args.mooncake}, args.draw)
        return
    began = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        found = []
        for each in pool.map(figures, runs({"azure": args.azure, "mooncake": args.mooncake}, args.calls)):
            found.append(each)
            print(
                f"{each['half']} {each['source']:9} {each['seed']:3}: ${each['cost']:.3f}, "
                f"{each['over_oracle']:+.1%} over the oracle, first {FIRST:,} "
                f"{each['first_over_oracle']:+.1%}, "
                f"{each['under_fixed']:.0%} under the best fixed route, {each['missed']:.1%} missed (oracle "
                f"{each['oracle_missed']:.1%}), {each['unanswered']} unanswered",
                flush=True,
            )
    table = {
        f"{half} {source}": row(some)
        for half in ("tuned", "fresh")
        for source in ("synthetic", *HALVES)
        if (some := [each for each in found if (each["half"], each["source"]) == (half, source)])
    }
    print(f"\n{'':16} {'runs':>5} {'over oracle':>16} {'first calls':>16} {'under fixed':>14} {'missed':>14}")
    for name, each in table.items():
        pairs = "".join(
            f"{f'{each[key][0]:.1%} ({each[key][1]:.1%})':>16}"
            for key in ("over_oracle", "first_over_oracle", "under_fixed", "missed")
        )
        print(f"{name:16} {each['runs']:5} {pairs}  unanswered {each['unanswered']}")
    result = {"calls": args.calls, "table": table, "runs": found}
    print(f"\n{len(found)} runs in {time.perf_counter() - began:.0f} s\n")
    print(json.dumps(result))
    if args.save:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
