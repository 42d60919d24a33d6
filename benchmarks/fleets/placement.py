"""Simulate the placement of calls on the replicas of one pool, against others and a central oracle.

    python benchmarks/fleets/placement.py TRACE [--replicas N ...] [--cache BLOCKS ...] [--save FILE]
    python benchmarks/fleets/placement.py TRACE --phases
    python benchmarks/fleets/placement.py --draw RESULTS.json PICTURE.png

TRACE is Mooncake's conversation trace (JSON lines, also compressed by gzip): its arrivals, lengths, and
hashes of the prompts' blocks of 512 tokens. Fleets with more replicas serve several copies of it, whose users
are others and whose first block, the system's prompt, is the same. Replicas take the times that were measured
(``service_times.py``, draft length 2), prolonged to longer prompts in proportion, and keep the blocks of
prompts in a cache of which the least recently used are evicted. Cached tokens are known when a call ends.

The placement is :class:`specclient.routing.replicas.replica_chooser.ReplicaChooser` as calls use it: it knows
no service times at first, and learns the size of the caches, too, unless they are reported. The oracle is the
same rule over all replicas with the exact contents of all caches and the exact times. ``longest prefix``
ignores the load unless several replicas hold as much.

With ``--phases`` the load changes as over a day, and fleets of one draft length, whose calls go to the least
loaded replica, stand against one whose steps have the length that is best for their requests and whose calls
are placed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from depth_by_load import LENGTHS, ServiceTimes
from placement_model import TRACE_BLOCK, ModelledFleet, TraceCall, trace_calls

from specclient.routing.pools.pool_speed import PoolSample, PoolSpeed
from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks
from specclient.routing.replicas.replica_chooser import ReplicaChooser

#: Tokens of one of the gateway's blocks, which has four bytes to a token here.
TOKEN_BYTES = 4
OWN_BLOCK = BLOCK_BYTES // TOKEN_BYTES
#: Phases: their share of the calls, and how fast these arrive, of the trace's own pace.
PHASES = (
    ("night", 0.1, 0.25), ("morning", 0.2, 0.6), ("noon", 0.35, 1.15), ("evening", 0.25, 0.8),
    ("late", 0.1, 0.3),
)  # fmt: skip


class Placement:
    """The placement under test: chooses as the gateway does, and learns from ended calls."""

    def __init__(
        self, fleet: ModelledFleet, seed: int, limit: int, *, reported: bool = False, oracle: bool = False
    ) -> None:
        self.now = 0.0
        self.speed = PoolSpeed()
        decode_s = fleet.token_s if oracle else self.speed_s
        index = ExactBlocks(fleet) if oracle else PrefixIndex(limit)
        self.chooser = ReplicaChooser(decode_s, index=index, dice=random.Random(seed), now=lambda: self.now)
        for _ in fleet.replicas:
            number = self.chooser.add()
            if reported:
                self.chooser.note_cache(number, fleet.cache_blocks * TRACE_BLOCK)
        self.decision_s: list[float] = []

    def speed_s(self, in_progress: float) -> float | None:
        return self.speed.token_s(in_progress, None)

    def place(self, call: TraceCall, now: float) -> int:
        self.now = now
        prompt = PromptBlocks(own_blocks(call), call.prompt * TOKEN_BYTES)
        begun = time.thread_time()
        choice = self.chooser.choose(prompt)
        self.decision_s.append(time.thread_time() - begun)
        self.chooser.began(choice)
        call.choice = choice
        return choice.replica

    def ended(self, call: TraceCall, now: float) -> None:
        self.now, choice = now, call.choice
        assert choice is not None
        load = (choice.load + 1 + self.chooser.load(choice.replica)) / 2
        self.chooser.ended(choice)
        first, total = call.first_at - call.at, call.ended_at - call.at
        self.chooser.learn(
            choice,
            prompt_tokens=call.prompt,
            cached_tokens=call.cached,
            answer_tokens=call.tokens,
            first_s=first,
        )
        self.speed.add(PoolSample(load, None, call.prompt - call.cached, call.tokens, first, total))


class ExactBlocks(PrefixIndex):
    """The exact contents of all caches, and the prompts that wait to be read, by the gateway's blocks."""

    def __init__(self, fleet: ModelledFleet) -> None:
        super().__init__(0)
        self._caches = fleet.caches
        self._waiting: dict[int, Counter[int]] = {}  # the replicas by block
        fleet.read = self._read

    def longest(self, blocks: Sequence[int], most: int) -> dict[int, int]:
        del most
        whole = [block >> 1 for block in blocks[::2]]
        found = self._caches.longest(whole, 2**62)
        for depth, block in enumerate(whole, 1):
            if not (holders := self._waiting.get(block)):
                break
            for replica in holders:
                found[replica] = max(found.get(replica, 0), depth)
        return {replica: _own_depth(depth, blocks) for replica, depth in found.items()}

    def held(self, replica: int, blocks: Sequence[int]) -> int:
        whole = [block >> 1 for block in blocks[::2]]
        depth = self._caches.held(replica, whole)
        while depth < len(whole) and replica in self._waiting.get(whole[depth], ()):
            depth += 1
        return _own_depth(depth, blocks)

    def note(self, replica: int, blocks: Sequence[int]) -> None:
        for block in blocks[::2]:
            self._waiting.setdefault(block >> 1, Counter())[replica] += 1

    def _read(self, call: TraceCall) -> None:
        for block in own_blocks(call)[::2]:
            holders = self._waiting[block >> 1]
            holders[call.replica] -= 1
            if not holders[call.replica]:
                del holders[call.replica]
            if not holders:
                del self._waiting[block >> 1]

    def is_full(self, replica: int) -> bool:
        return self._caches.is_full(replica)

    def age(self, replica: int, block: int) -> int:
        del replica, block
        return 0

    def learn(self, replica: int, expected: int, actual: float, age: int) -> None:
        """Ignore it."""


def _own_depth(depth: int, blocks: Sequence[int]) -> int:
    return min(depth * TRACE_BLOCK // OWN_BLOCK, len(blocks))


def own_blocks(call: TraceCall) -> list[int]:
    """Return the hashes of a call's prompt by the gateway's blocks, of which a block of the trace has two."""
    return [block * 2 + half for block in call.blocks for half in (0, 1)]


def figures(calls: Sequence[TraceCall]) -> dict[str, float]:
    """Return hit rate, times to the first token and of the call, without the first tenth of the calls."""
    late = calls[len(calls) // 10 :]
    firsts = sorted(call.first_at - call.at for call in late)
    totals = sorted(call.ended_at - call.at for call in late)
    return {
        "hit_rate": sum(call.cached for call in late) / sum(call.prompt for call in late),
        "ttft_mean_s": statistics.mean(firsts),
        "ttft_p99_s": firsts[int(len(firsts) * 0.99)],
        "mean_s": statistics.mean(totals),
        "p99_s": totals[int(len(totals) * 0.99)],
    }


class Turns:
    """Policies that learn nothing from answers."""

    def __init__(self, fleet: ModelledFleet, seed: int) -> None:
        self._fleet = fleet
        self._dice, self._turn, self._count = random.Random(seed), itertools.count(), len(fleet.replicas)

    def round_robin(self, _: TraceCall, __: float) -> int:
        return next(self._turn) % self._count

    def at_random(self, _: TraceCall, __: float) -> int:
        return self._dice.randrange(self._count)

    def least_loaded(self, _: TraceCall, __: float) -> int:
        return min(self._fleet.replicas, key=lambda replica: replica.load).number

    def by_session(self, call: TraceCall, __: float) -> int:
        return random.Random(call.session).randrange(self._count)

    def longest_prefix(self, call: TraceCall, __: float) -> int:
        found = self._fleet.caches.longest(call.blocks, 2**62)
        deepest = max(found.values(), default=0)
        usable = [number for number, depth in found.items() if depth == deepest > 1] or range(self._count)
        return min(usable, key=lambda number: self._fleet.replicas[number].load)

    def ended(self, call: TraceCall, now: float) -> None:
        """Learn nothing."""


SIMPLE = {
    "round robin": Turns.round_robin,
    "random": Turns.at_random,
    "least loaded": Turns.least_loaded,
    "session": Turns.by_session,
    "longest prefix": Turns.longest_prefix,
}
INFORMED: dict[str, dict[str, Any]] = {
    "placement": {},
    "placement, size reported": {"reported": True},
    "oracle": {"oracle": True},
}


def run(name: str, fleet: ModelledFleet, calls: Sequence[TraceCall], seed: int, limit: int) -> dict[str, Any]:
    """Serve the calls by one policy; return its figures."""
    if name in SIMPLE:
        turns = Turns(fleet, seed)
        fleet.serve(calls, lambda call, now: SIMPLE[name](turns, call, now), turns.ended)
        return figures(calls)
    placement = Placement(fleet, seed, limit, **INFORMED[name])
    fleet.serve(calls, placement.place, placement.ended)
    decisions = sorted(placement.decision_s)
    late = decisions[len(decisions) * 99 // 100]
    return {
        **figures(calls), "decision_median_s": statistics.median(decisions), "decision_p99_s": late
    }  # fmt: skip


def phased(file: Path, seed: int) -> tuple[list[TraceCall], list[str]]:
    """Return the calls of a day, and the phase of each."""
    calls, names = trace_calls(file, 1, seed), []
    ends = [round(mark * len(calls)) for mark in itertools.accumulate(share for _, share, _ in PHASES)]
    now = before = 0.0
    for at, call in enumerate(calls):
        name, _, pace = PHASES[min(sum(at >= end for end in ends), len(PHASES) - 1)]
        now, before = now + (call.at - before) / pace, call.at
        call.at = now
        names.append(name)
    return calls, names


def show_phases(file: Path, times: ServiceTimes, replicas: int, cache: int, seed: int) -> None:
    """Print mean seconds by phase."""
    fleets: dict[str, tuple[Sequence[int], str]] = {
        f"length {k}, least loaded": ((k,), "least loaded") for k in LENGTHS
    }
    fleets |= {f"length {k}, placed": ((k,), "placement, size reported") for k in LENGTHS}
    fleets["length by requests, least loaded"] = LENGTHS, "least loaded"
    fleets["length by requests, placed"] = LENGTHS, "placement, size reported"
    print(
        f"{replicas} replicas, mean s{'':14}" + "".join(f"{name:>9}" for name, _, _ in PHASES) + "      day"
    )
    for title, (lengths, policy) in fleets.items():
        calls, names = phased(file, seed)
        run(policy, ModelledFleet(times, replicas, cache, lengths), calls, seed, 2_000_000)
        seconds = [call.ended_at - call.at for call in calls]
        cells = [
            statistics.mean(each for each, own in zip(seconds, names, strict=True) if own == name)
            for name, _, _ in PHASES
        ]
        cells.append(statistics.mean(seconds))
        print(f"{title:35}" + "".join(f"{cell:9.2f}" for cell in cells), flush=True)


def draw(results: Path, picture: Path) -> None:
    """Draw hit rate and time to the first token of each policy on the largest fleet."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - for --draw alone

    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    most = max(row["replicas"] for row in rows)
    rows = [row for row in rows if row["replicas"] == most]
    names = [row["policy"] for row in rows]
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
    titles = {"hit_rate": "hit rate", "ttft_mean_s": "TTFT, mean, s", "ttft_p99_s": "TTFT, p99, s"}
    colours = ["#0072B2" if name.startswith("placement") else "#BBBBBB" for name in names]
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        bars = axes.barh(names, [row[key] for row in rows], color=colours)
        axes.bar_label(bars, fmt="%.3f" if key == "hit_rate" else "%.1f", padding=2, fontsize=8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.2)
    panels[0].invert_yaxis()
    figure.savefig(picture, dpi=150, bbox_inches="tight")


def main() -> None:
    """Simulate, and print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--times", type=Path, default=Path(__file__).with_name("service_times.jsonl"))
    parser.add_argument("--replicas", type=int, nargs="+", default=[64])
    parser.add_argument("--copies", type=float, default=1 / 64, help="copies of the trace for each replica")
    parser.add_argument("--cache", type=int, nargs="+", default=[600], help="blocks in a replica's cache")
    parser.add_argument("--limit", type=int, default=2_000_000, help="entries of the index")
    parser.add_argument("--only", nargs="+", default=[*SIMPLE, *INFORMED])
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--draw", type=Path, nargs=2)
    given = parser.parse_args()
    if given.draw is not None:
        draw(*given.draw)
        return
    times = ServiceTimes(given.times)
    if given.phases:
        show_phases(given.trace, times, given.replicas[0], given.cache[0], given.seed)
        return
    rows = []
    for count, cache, name in itertools.product(given.replicas, given.cache, given.only):
        calls = trace_calls(given.trace, max(round(count * given.copies), 1), given.seed)
        found = run(name, ModelledFleet(times, count, cache), calls, given.seed, given.limit)
        rows.append({"replicas": count, "cache": cache, "policy": name, "calls": len(calls), **found})
        cells = "".join(f"  {key} {value:.6g}" for key, value in found.items())
        print(f"{count} replicas, cache {cache}, {name:25}{cells}", flush=True)
    if given.save is not None:
        given.save.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
