"""Ways to follow the load with the draft length, simulated from measured service times.

    python benchmarks/fleets/depth_ways.py TRACE.csv.gz [--times FILE] [--seeds N]

The day, its calls and the replicas are those of ``depth_by_load.py``. Compared are, each with the same number
of replicas:

- fleets of one draft length, whose calls go to the least loaded replica;
- split pools, whose replicas are chosen with exact knowledge of all times: of the call, and of the delay of
  the calls in progress. No choice by learned times is better informed;
- the same with work stealing: a replica that has nothing to do takes the last waiting call of another one;
- engines that change their draft length by the number of requests in each step, which vLLM does by
  ``num_speculative_tokens_per_batch_size``, and the own engine by its measured times;
- engines that choose it for each request by its task as well;
- engines of the last kind with a limit of requests in progress, before which calls wait at the gateway, in
  the order of arrival, or the shortest first (of known length: no gateway knows it before the answer).
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from depth_by_load import (
    BATCH,
    LENGTHS,
    Replica,
    ServiceTimes,
    SimulatedRequest,
    least_loaded,
    means,
    workload,
)

TASKS = ("code", "text")
#: Of the measurements on a GPU: the wanted acceptance rate of a task, and the seconds of a prompt's token.
ACCEPTANCE, GPU_PREFILL_S = {"code": 0.8, "text": 0.6}, 6.7e-3 / 256
Lengths = Callable[[Sequence[SimulatedRequest]], Sequence[int]]
"""Returns the draft length of each request of a step."""


class FlexibleReplica(Replica):
    """A server that chooses the draft lengths of each step.

    Its step takes the mean of the steps in which all requests have the length of one of them.
    """

    def __init__(self, lengths: Lengths) -> None:
        super().__init__(length=0)
        self._lengths = lengths

    def step(self, now: float, times: ServiceTimes) -> tuple[float, list[SimulatedRequest]]:
        if self.waiting and len(self.running) < BATCH:
            return super().step(now, times)
        count, lengths = len(self.running), self._lengths(self.running)
        end = now + sum(times.step_s(length, count) for length in lengths) / count
        for request, length in zip(self.running, lengths, strict=True):
            request.left -= times.tokens(length, request.task)
        ended = [request for request in self.running if request.left <= 0]
        self.running = [request for request in self.running if request.left > 0]
        for request in ended:
            request.ended_at = end
        return end, ended


class GpuTimes(ServiceTimes):
    """Measured times of the own engine on a GPU (``benchmarks/gpu.py``), in the place of vLLM's.

    Between the measured numbers of requests (1, 4, 16, 64) times are interpolated; the tokens of a step are
    the mean over them.
    """

    def __init__(self, file: Path) -> None:
        found = json.loads(file.read_text(encoding="utf-8"))
        rows = [row for row in found["grid"]["rows"] if row["depth"] in LENGTHS]
        steps: dict[int, dict[int, list[float]]] = {k: {} for k in LENGTHS}
        for row in found["batches"]["rows"]:
            steps[0].setdefault(row["batch"], []).append(row["batch"] / row["tokens_per_s"])
        for row in rows:
            seconds = row["tokens_a_round"] * row["batch"] / row["tokens_per_s"]
            steps[row["depth"]].setdefault(row["batch"], []).append(seconds)
        self._steps = {
            k: [(n, statistics.mean(each)) for n, each in sorted(steps[k].items())] for k in LENGTHS
        }
        self._tokens = {(0, task): 1.0 for task in TASKS}
        for k, task in itertools.product(LENGTHS[1:], TASKS):
            own = [row for row in rows if (row["depth"], row["wanted"]) == (k, ACCEPTANCE[task])]
            self._tokens[k, task] = statistics.mean(row["tokens_a_round"] for row in own)
        self.prompt_token_s = GPU_PREFILL_S


def by_count(times: ServiceTimes) -> Lengths:
    """Return the choice by the number of requests alone: the most tokens a second of an average task."""

    def rate(length: int, count: int) -> float:
        return statistics.mean(times.tokens(length, task) for task in TASKS) / times.step_s(length, count)

    best = [max(LENGTHS, key=lambda length, n=count: rate(length, n)) for count in range(1, BATCH + 1)]
    return lambda running: [best[len(running) - 1]] * len(running)


def by_task(times: ServiceTimes) -> Lengths:
    """Return the choice for each request: by the most tokens a second of all requests of the step.

    For each number of requests with code, the lengths of the two tasks are those with the most tokens.
    """
    best: dict[tuple[int, int], dict[str, int]] = {}
    for count in range(1, BATCH + 1):
        for code in range(count + 1):
            numbers = {"code": code, "text": count - code}

            def rate(pair: tuple[int, int], numbers: dict[str, int] = numbers, count: int = count) -> float:
                tokens = sum(
                    numbers[task] * times.tokens(k, task) for task, k in zip(TASKS, pair, strict=True)
                )
                parts = zip(TASKS, pair, strict=True)
                return tokens / sum(numbers[task] * times.step_s(k, count) for task, k in parts)

            pair = max(itertools.product(LENGTHS, repeat=2), key=rate)
            best[count, code] = dict(zip(TASKS, pair, strict=True))

    def choose(running: Sequence[SimulatedRequest]) -> Sequence[int]:
        code = sum(request.task == "code" for request in running)
        lengths = best[len(running), code]
        return [lengths[request.task] for request in running]

    return choose


class InformedPools:
    """Split pools whose replicas are chosen with the exact times of all calls in progress."""

    def __init__(self, sizes: dict[int, int], times: ServiceTimes, *, stealing: bool) -> None:
        self.replicas = [Replica(k) for k, count in sizes.items() for _ in range(count)]
        self._times = times
        self._stealing = stealing

    def place(self, call: SimulatedRequest) -> Sequence[Replica]:
        replica = min(self.replicas, key=lambda replica: self._cost(replica, call))
        replica.waiting.append(call)
        return [replica]

    def _cost(self, replica: Replica, call: SimulatedRequest) -> float:
        """Return the seconds of a call on a replica, and those by which it delays the others there."""
        times, length, load = self._times, replica.length, replica.load
        reading = sum(each.prompt for each in replica.waiting) * times.prompt_token_s
        prefill = call.prompt * times.prompt_token_s
        count = min(load + 1, BATCH)
        step = times.step_s(length, count)
        steps = call.tokens / times.tokens(length, call.task)
        others = [each.left / times.tokens(length, each.task) for each in replica.running]
        others += [each.tokens / times.tokens(length, each.task) for each in replica.waiting]
        slower = step - times.step_s(length, min(load, BATCH)) if load else 0.0
        delay = sum(min(each, steps) for each in others) * slower + prefill * len(others)
        return reading + prefill + steps * step + delay

    def ended(self, replica: Replica) -> Sequence[Replica]:
        """Let a replica without work take a waiting call."""
        longest = max(self.replicas, key=lambda each: len(each.waiting))
        if self._stealing and not replica.load and longest.waiting:
            replica.waiting.append(longest.waiting.pop())
        return ()


class GatewayQueue:
    """Replicas with a limit of requests in progress; further calls wait at the gateway."""

    def __init__(
        self, replicas: Sequence[Replica], limit: int, order: Callable[[SimulatedRequest], float]
    ) -> None:
        self.replicas = replicas
        self._limit = limit
        self._order = order
        self._queue: list[tuple[float, int, SimulatedRequest]] = []
        self._count = itertools.count()

    def place(self, call: SimulatedRequest) -> Sequence[Replica]:
        heapq.heappush(self._queue, (self._order(call), next(self._count), call))
        return self._handed_on()

    def ended(self, replica: Replica) -> Sequence[Replica]:
        """Hand waiting calls to replicas with room."""
        del replica
        return self._handed_on()

    def _handed_on(self) -> Sequence[Replica]:
        found = []
        while self._queue and (replica := least_loaded(self.replicas)).load < self._limit:
            replica.waiting.append(heapq.heappop(self._queue)[2])
            found.append(replica)
        return found


Fleet = InformedPools | GatewayQueue


def serve(calls: Sequence[SimulatedRequest], times: ServiceTimes, fleet: Fleet) -> None:
    """Serve the calls."""
    order = itertools.count()
    events: list[tuple[float, int, Replica | SimulatedRequest]] = [
        (call.at, next(order), call) for call in calls
    ]
    heapq.heapify(events)
    finishing: dict[int, int] = {}
    while events:
        now, _, what = heapq.heappop(events)
        woken: list[Replica] = []
        if isinstance(what, Replica):
            what.busy = False
            for _ in range(finishing.pop(id(what))):
                woken += fleet.ended(what)
            woken.append(what)
        else:
            woken += fleet.place(what)
        for replica in woken:
            if not replica.busy and replica.load:
                replica.busy = True
                end, done = replica.step(now, times)
                finishing[id(replica)] = len(done)
                heapq.heappush(events, (end, next(order), replica))


def ways(times: ServiceTimes, replicas: int) -> dict[str, Callable[[], Fleet]]:
    """Return the fleets to compare, by name."""
    endless = 10**9

    def same(
        count: int, make: Callable[[], Replica], limit: int = endless, *, shortest: bool = False
    ) -> Fleet:
        def tokens(call: SimulatedRequest) -> float:
            return call.tokens if shortest else 0.0

        return GatewayQueue([make() for _ in range(count)], limit, tokens)

    def split(text: str, *, stealing: bool = False) -> Fleet:
        sizes = dict(zip(LENGTHS, map(int, text.split(",")), strict=True))
        return InformedPools(sizes, times, stealing=stealing)

    counted, tasked = by_count(times), by_task(times)
    found: dict[str, Callable[[], Fleet]] = {
        f"all of length {k}": lambda k=k: same(replicas, lambda: Replica(k)) for k in LENGTHS
    }
    found |= {f"split {text}, exact times": lambda text=text: split(text) for text in ("2,2,2", "1,4,1")}
    found["split 1,4,1, exact times, stealing"] = lambda: split("1,4,1", stealing=True)
    found["all of length 2, exact times"] = lambda: split(f"0,{replicas},0")
    found["length by requests of a step"] = lambda: same(replicas, lambda: FlexibleReplica(counted))
    found["length by request and task"] = lambda: same(replicas, lambda: FlexibleReplica(tasked))
    for limit in (8, 16):
        found[f"length 2, {limit} at a time"] = lambda limit=limit: same(replicas, lambda: Replica(2), limit)
        found[f"length by task, {limit} at a time"] = lambda limit=limit: same(
            replicas, lambda: FlexibleReplica(tasked), limit
        )
    found["length 2, 8 at a time, shortest first"] = lambda: same(
        replicas, lambda: Replica(2), 8, shortest=True
    )
    found["length by task, 8 at a time, shortest first"] = lambda: same(
        replicas, lambda: FlexibleReplica(tasked), 8, shortest=True
    )
    return found


def main() -> None:
    """Simulate, and print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=Path, default=Path(__file__).with_name("service_times.jsonl"))
    parser.add_argument("--gpu", type=Path, help="figures of benchmarks/gpu.py, in the place of --times")
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scale", type=int, default=3, help="times the calls of each phase")
    given = parser.parse_args()
    times = ServiceTimes(given.times) if given.gpu is None else GpuTimes(given.gpu)
    for k in LENGTHS:
        print(f"length {k}: ms of a step", {n: round(1e3 * times.step_s(k, n), 1) for n in (1, 4, 16, 32)})
    shown = False
    for name, make in ways(times, given.replicas).items():
        found = []
        for seed in range(given.seeds):
            calls = workload(given.trace, times, given.replicas, seed, given.scale)
            serve(calls, times, make())
            found.append(means(calls))
        if not shown:
            print(f"mean ms{'':37}" + "".join(f"{phase:>9}" for phase in found[0]))
            shown = True
        cells = (1e3 * statistics.mean(each[phase] for each in found) for phase in found[0])
        print(f"{name:44}" + "".join(f"{cell:9.0f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
