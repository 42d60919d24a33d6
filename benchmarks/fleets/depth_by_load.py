"""Simulate a fleet whose pools have other draft lengths, against fleets of one draft length.

    python benchmarks/fleets/depth_by_load.py TRACE.csv.gz [--times FILE] [--replicas N]

TRACE is the Azure LLM inference trace (conversation). Its prompts and answers, clipped to the model's
context, and the gaps of its arrivals are replayed in phases of low and high load, the same for all fleets.
Each fleet has the same number of replicas. Replicas behave as vLLM's were measured (``service_times.py``):
prompts are read first, then each step gives every request its tokens. A fleet of one length sends calls to
its least loaded replica, and so does a mixed one for comparison; otherwise the mixed one lets
:class:`specclient.routing.pools.pool_chooser.PoolChooser` choose, which knows nothing at first.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import itertools
import json
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specclient.routing.pools.pool_chooser import PoolChooser
from specclient.routing.pools.pool_speed import PoolSample

LENGTHS = (0, 2, 5)
BATCH = 32
#: The phases of the day: load as a share of what replicas without drafts can serve, and the number of calls.
PHASES = (
    ("night", 0.1, 400),
    ("morning", 0.45, 1200),
    ("noon", 0.8, 2400),
    ("evening", 0.6, 1600),
    ("late", 0.2, 600),
)
TASKS = {"code": "code", "text": "chat"}


class ServiceTimes:
    """Measured times of a replica, the least of each cell's repetitions."""

    def __init__(self, file: Path) -> None:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        self._steps = {k: _steps(rows, k) for k in LENGTHS}
        self._tokens = {
            (k, task): statistics.mean(
                row["tokens_per_step"] for row in rows if (row["draft_length"], row["task"]) == (k, task)
            )
            for k in LENGTHS
            for task in TASKS
        }
        each: dict[tuple[object, ...], float] = {}
        for row in rows:
            if row["draft_length"] == 0:
                key = row["prompt_tokens"], row["in_progress"]
                each[key] = min(each.get(key, 1e9), row["prefill_s"] / row["prompt_tokens"])
        self.prompt_token_s = statistics.median(each.values())

    def step_s(self, length: int, count: int) -> float:
        """Return the seconds of a step with so many requests."""
        points = self._steps[length]
        for (n0, s0), (n1, s1) in itertools.pairwise(points):
            if count <= n1:
                return s0 + (s1 - s0) * (count - n0) / (n1 - n0)
        return points[-1][1] * count / points[-1][0]

    def tokens(self, length: int, task: str) -> float:
        """Return the tokens of a request per step."""
        return self._tokens[length, task]


def _steps(rows: Sequence[dict[str, float]], length: int) -> list[tuple[int, float]]:
    """Return the step's seconds by the number of requests, averaged over tasks and prompts, never falling."""
    least: dict[tuple[object, ...], float] = {}
    for row in rows:
        if row["draft_length"] == length:
            key = row["in_progress"], row["task"], row["length"]
            least[key] = min(least.get(key, 1e9), row["step_s"])
    counts = sorted({key[0] for key in least})
    means = [statistics.mean(value for key, value in least.items() if key[0] == count) for count in counts]
    return list(zip(counts, itertools.accumulate(means, max), strict=True))


@dataclass
class SimulatedRequest:
    """One call: its arrival, work, and the times that it saw."""

    at: float
    task: str
    prompt: int
    tokens: int
    phase: str
    left: float = 0.0
    first_at: float = 0.0
    ended_at: float = 0.0
    pool: str = ""


@dataclass
class Replica:
    """A server with one draft length."""

    length: int
    waiting: deque[SimulatedRequest] = field(default_factory=deque)
    running: list[SimulatedRequest] = field(default_factory=list)
    busy: bool = False

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def step(self, now: float, times: ServiceTimes) -> tuple[float, list[SimulatedRequest]]:
        """Do the next pass; return its end, and the requests that it ends."""
        if self.waiting and len(self.running) < BATCH:
            request = self.waiting.popleft()
            end = now + times.prompt_token_s * request.prompt + times.step_s(self.length, 1)
            request.first_at, request.left = end, request.tokens - 1.0
            self.running.append(request)
        else:
            end = now + times.step_s(self.length, len(self.running))
            for request in self.running:
                request.left -= times.tokens(self.length, request.task)
        ended = [request for request in self.running if request.left <= 0]
        self.running = [request for request in self.running if request.left > 0]
        for request in ended:
            request.ended_at = end
        return end, ended


Place = Callable[[SimulatedRequest, float], Replica]
Ended = Callable[[SimulatedRequest, float], None]


def simulate(calls: Sequence[SimulatedRequest], times: ServiceTimes, place: Place, ended: Ended) -> None:
    """Serve the calls."""
    order = itertools.count()
    events: list[tuple[float, int, Replica | SimulatedRequest]] = []
    events += [(call.at, next(order), call) for call in calls]
    heapq.heapify(events)
    finishing: dict[int, list[SimulatedRequest]] = {}
    while events:
        now, _, what = heapq.heappop(events)
        if isinstance(what, Replica):
            for request in finishing.pop(id(what), ()):
                ended(request, now)
            replica = what
            replica.busy = False
        else:
            replica = place(what, now)
            replica.waiting.append(what)
        if not replica.busy and replica.load:
            replica.busy = True
            end, done = replica.step(now, times)
            finishing[id(replica)] = done
            heapq.heappush(events, (end, next(order), replica))


def least_loaded(replicas: Sequence[Replica]) -> Replica:
    """Return the replica with the fewest requests."""
    return min(replicas, key=lambda replica: replica.load)


class LeastLoaded:
    """A fleet whose calls go to the replica with the fewest requests, whatever its draft length."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self._replicas = [Replica(k) for k, count in sizes.items() for _ in range(count)]

    def place(self, call: SimulatedRequest, now: float) -> Replica:
        del call, now
        return least_loaded(self._replicas)


def _nothing(call: SimulatedRequest, now: float) -> None:
    del call, now


class Mixed:
    """A fleet of pools, whose chooser learns from the calls that it has placed."""

    def __init__(self, sizes: dict[int, int], seed: int) -> None:
        self.replicas = [Replica(k) for k, count in sizes.items() for _ in range(count)]
        self.now = 0.0
        pools = {f"d{k}": (count, k > 0) for k, count in sizes.items() if count}
        self.chooser = PoolChooser(pools, dice=random.Random(seed), now=lambda: self.now)
        self.decision_s: list[float] = []

    def place(self, call: SimulatedRequest, now: float) -> Replica:
        self.now = now
        begun = time.thread_time()
        call.pool = self.chooser.choose(TASKS[call.task], call.prompt, 60.0).name
        self.decision_s.append(time.thread_time() - begun)
        self.chooser.began(call.pool)
        return least_loaded([each for each in self.replicas if f"d{each.length}" == call.pool])

    def ended(self, call: SimulatedRequest, now: float) -> None:
        self.now = now
        self.chooser.ended(call.pool)
        total = call.ended_at - call.at
        load = self.chooser.mean_load(call.pool, total)
        sample = PoolSample(load, TASKS[call.task], call.prompt, call.tokens, call.first_at - call.at, total)
        self.chooser.learn(call.pool, sample)


def workload(file: Path, times: ServiceTimes, replicas: int, seed: int, scale: int) -> list[SimulatedRequest]:
    """Return the calls of a day."""
    dice = random.Random(seed)
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    seconds = [_seconds(row[0]) for row in rows]
    gaps = [max(later - earlier, 0.0) for earlier, later in itertools.pairwise(seconds)]
    mean_gap = statistics.mean(gaps)
    sizes = [(min(max(int(row[1]) // 4, 8), 380), min(max(int(row[2]) // 2, 4), 120)) for row in rows]
    work = statistics.mean(
        prompt * times.prompt_token_s + tokens * times.step_s(0, BATCH) / BATCH for prompt, tokens in sizes
    )
    calls: list[SimulatedRequest] = []
    now, at = 0.0, dice.randrange(len(gaps))
    for name, load, count in PHASES:
        gap = work / (load * replicas)
        for _ in range(count * scale):
            at = (at + 1) % len(gaps)
            now += gaps[at] / mean_gap * gap
            prompt, tokens = sizes[at]
            calls.append(SimulatedRequest(now, dice.choice(tuple(TASKS)), prompt, tokens, name))
    return calls


def _seconds(stamp: str) -> float:
    clock = stamp.rsplit(maxsplit=1)[-1].split(":")
    return int(clock[0]) * 3600 + int(clock[1]) * 60 + float(clock[2])


def copies(calls: Sequence[SimulatedRequest]) -> list[SimulatedRequest]:
    """Return the calls as they arrive."""
    return [SimulatedRequest(call.at, call.task, call.prompt, call.tokens, call.phase) for call in calls]


def means(calls: Sequence[SimulatedRequest]) -> dict[str, float]:
    """Return the mean seconds of each phase and of the day."""
    found = {}
    for name, *_ in PHASES:
        found[name] = statistics.mean(call.ended_at - call.at for call in calls if call.phase == name)
    found["day"] = statistics.mean(call.ended_at - call.at for call in calls)
    return found


def main() -> None:
    """Simulate, and print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=Path, default=Path(__file__).with_name("service_times.jsonl"))
    parser.add_argument("--sizes", nargs="+", default=["2,2,2", "1,4,1"], help="mixed fleets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scale", type=int, default=3, help="times the calls of each phase")
    given = parser.parse_args()
    times = ServiceTimes(given.times)
    for k in LENGTHS:
        steps = ", ".join(f"{n}: {1e3 * times.step_s(k, n):.1f}" for n in (1, 2, 4, 8, 16, 32))
        tokens = ", ".join(f"{times.tokens(k, task):.2f} {task}" for task in TASKS)
        print(f"draft length {k}: ms of a step {steps}; tokens {tokens}")
    rows: dict[str, list[dict[str, float]]] = {}
    decisions: list[float] = []
    replicas = sum(map(int, given.sizes[0].split(",")))
    for seed in range(given.seeds):
        day = workload(given.trace, times, replicas, seed, given.scale)
        for k in LENGTHS:
            calls = copies(day)
            simulate(calls, times, LeastLoaded({k: replicas}).place, _nothing)
            rows.setdefault(f"all with length {k}", []).append(means(calls))
        for text in given.sizes:
            sizes = dict(zip(LENGTHS, map(int, text.split(",")), strict=True))
            calls = copies(day)
            simulate(calls, times, LeastLoaded(sizes).place, _nothing)
            rows.setdefault(f"{text}, least loaded", []).append(means(calls))
            mixed = Mixed(sizes, seed)
            calls = copies(day)
            simulate(calls, times, mixed.place, mixed.ended)
            rows.setdefault(f"{text}, chosen", []).append(means(calls))
            decisions += mixed.decision_s
    print(f"\nmean ms{'':13}" + "".join(f"{name:>10}" for name in next(iter(rows.values()))[0]))
    for name, found in rows.items():
        cells = (1e3 * statistics.mean(each[key] for each in found) for key in found[0])
        print(f"{name:20}" + "".join(f"{cell:10.0f}" for cell in cells))
    middle, most = statistics.median(decisions), max(decisions)
    print(f"decision: median {1e6 * middle:.0f} µs, greatest {1e3 * most:.2f} ms, of {len(decisions)}")


if __name__ == "__main__":
    main()
