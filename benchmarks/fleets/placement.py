"""Simulate the placement of calls on the replicas of one pool, against others and a central oracle.

    python benchmarks/fleets/placement.py TRACE [--replicas N ...] [--save]

TRACE is Mooncake's conversation trace (JSON lines, also compressed by gzip): its arrivals, lengths, and hashes
of the prompts' blocks of 512 tokens. Fleets with more replicas serve several copies of it, whose users are
others and whose first block, the system's prompt, is the same. Replicas take the times that were measured
(``service_times.py``, draft length 2), prolonged to longer prompts in proportion, and keep the blocks of
prompts in a cache of which the least recently used are evicted. A call's cached tokens are told when it ends.

The placement is :class:`specclient.routing.replicas.replica_chooser.ReplicaChooser` as calls use it: it knows
neither the service times nor the size of the caches at first. The oracle is the same rule with the exact
contents of all caches and the exact times, over all replicas; ``longest prefix`` ignores the load, and has the
most hits of any.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import itertools
import json
import math
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from depth_by_load import BATCH, ServiceTimes

from specclient.routing.pools.pool_speed import PoolSample, PoolSpeed
from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks
from specclient.routing.replicas.replica_chooser import ReplicaChoice, ReplicaChooser

LENGTH = 2
#: Tokens of a block of the trace, and of one of the gateway's, which has four bytes to a token here.
TRACE_BLOCK, TOKEN_BYTES = 512, 4
OWN_BLOCK = BLOCK_BYTES // TOKEN_BYTES


@dataclass(slots=True)
class TraceCall:
    """One call: its arrival and work, and the times that it saw."""

    at: float
    prompt: int
    tokens: int
    blocks: list[int]
    left: float = 0.0
    cached: int = 0
    first_at: float = 0.0
    ended_at: float = 0.0
    replica: int = -1
    load_s: float = 0.0
    choice: ReplicaChoice | None = None


@dataclass(slots=True)
class ModelledReplica:
    """A server: it reads one prompt at a time, and else gives all its requests the tokens of a step."""

    number: int
    waiting: deque[TraceCall] = field(default_factory=deque)
    running: list[TraceCall] = field(default_factory=list)
    reading: TraceCall | None = None
    begun: float = 0.0
    step_s: float = 0.0
    steps: int = 0
    version: int = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running) + (self.reading is not None)


class ModelledFleet:
    """Replicas with the measured times, and caches of which the least recently used blocks are evicted."""

    def __init__(self, times: ServiceTimes, replicas: int, cache_blocks: int) -> None:
        self.replicas = [ModelledReplica(number) for number in range(replicas)]
        self.caches = PrefixIndex(2**62)
        for number in range(replicas):
            self.caches.resize(number, cache_blocks)
        self.cache_blocks = cache_blocks
        self.read: Callable[[TraceCall], None] = lambda call: None
        self.prompt_token_s = times.prompt_token_s
        self.steps_s = [0.0] + [times.step_s(LENGTH, count) for count in range(1, BATCH + 1)]
        self.tokens = statistics.mean(times.tokens(LENGTH, task) for task in ("code", "text"))
        self.decode_s = [0.0] + [step / self.tokens for step in self.steps_s[1:]]

    def token_s(self, in_progress: float) -> float:
        """Return the seconds of a token by the requests in progress."""
        whole = min(max(int(in_progress), 1), BATCH)
        return self.decode_s[whole] * max(in_progress / BATCH, 1.0)

    def serve(
        self,
        calls: Sequence[TraceCall],
        place: Callable[[TraceCall, float], int],
        ended: Callable[[TraceCall, float], None],
    ) -> None:
        """Serve the calls."""
        order = itertools.count()
        events: list[tuple[float, int, int, int]] = []
        arrivals = iter(calls)
        following = next(arrivals, None)
        while events or following is not None:
            if following is not None and (not events or following.at <= events[0][0]):
                call, now = following, following.at
                following = next(arrivals, None)
                replica = self.replicas[place(call, now)]
                call.replica = replica.number
                replica.waiting.append(call)
                if replica.reading is None:
                    if replica.running:  # the step that runs is finished first
                        done = min(math.ceil((now - replica.begun) / replica.step_s), replica.steps)
                        replica.steps, end = done, replica.begun + done * replica.step_s
                    else:
                        end = now
                    replica.version += 1
                    heapq.heappush(events, (end, next(order), replica.number, replica.version))
                continue
            now, _, number, version = heapq.heappop(events)
            replica = self.replicas[number]
            if version == replica.version:
                self._advance(replica, now, ended)
                if replica.load:
                    end = self._begin(replica, now)
                    replica.version += 1
                    heapq.heappush(events, (end, next(order), number, replica.version))

    def _advance(
        self, replica: ModelledReplica, now: float, ended: Callable[[TraceCall, float], None]
    ) -> None:
        """End the prompt or the steps that have been done."""
        if replica.reading is not None:
            call = replica.reading
            call.first_at, call.left = now, call.tokens - 1.0
            replica.running.append(call)
            replica.reading = None
        elif replica.running:
            for call in replica.running:
                call.left -= replica.steps * self.tokens
        replica.steps = 0
        over = [call for call in replica.running if call.left <= 0]
        if over:
            replica.running = [call for call in replica.running if call.left > 0]
            for call in over:
                call.ended_at = now
                ended(call, now)

    def _begin(self, replica: ModelledReplica, now: float) -> float:
        """Begin to read a prompt, or steps until an answer ends; return their end."""
        if replica.waiting and len(replica.running) < BATCH:
            call = replica.reading = replica.waiting.popleft()
            self.read(call)
            held = self.caches.held(replica.number, call.blocks) * TRACE_BLOCK
            call.cached = min(held, call.prompt - 1)
            self.caches.note(replica.number, call.blocks)
            return now + (call.prompt - call.cached) * self.prompt_token_s + self.steps_s[1]
        replica.begun, replica.step_s = now, self.steps_s[len(replica.running)]
        least = min(call.left for call in replica.running)
        replica.steps = max(math.ceil(least / self.tokens), 1)
        return now + replica.steps * replica.step_s


class Placement:
    """The placement under test: chooses as the gateway does, and learns from ended calls."""

    def __init__(
        self, fleet: ModelledFleet, seed: int, limit: int, reported: int = 0, *, oracle: str = ""
    ) -> None:
        self.now = 0.0
        self.speed = PoolSpeed()
        decode_s = fleet.token_s if oracle else self.speed_s
        index = ExactBlocks(fleet, 0 if oracle == "same" else 2**62) if oracle else PrefixIndex(limit)
        self.chooser = ReplicaChooser(decode_s, index=index, dice=random.Random(seed), now=lambda: self.now)
        for _ in fleet.replicas:
            number = self.chooser.add()
            if reported:
                self.chooser.note_cache(number, reported * TRACE_BLOCK)
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

    def __init__(self, fleet: ModelledFleet, most: int) -> None:
        super().__init__(0)
        self._caches, self._most = fleet.caches, most
        self._waiting: dict[int, Counter[int]] = {}  # the replicas by block
        fleet.read = self._read

    def longest(self, blocks: Sequence[int], most: int) -> dict[int, int]:
        whole = [block >> 1 for block in blocks[::2]]
        found = self._caches.longest(whole, self._most or most)
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


def trace_calls(file: Path, copies: int, pace: float, seed: int) -> list[TraceCall]:
    """Return the calls of so many copies of the trace, which begin at random times of it.

    Args:
        pace: seconds of the simulation for each second of the trace.
    """
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    dice, calls = random.Random(seed), []
    most = 1 + max(max(row["hash_ids"]) for row in rows)
    for copy in range(copies):
        shift = dice.random() * 60.0 if copies > 1 else 0.0  # timestamps come in steps of three seconds
        for row in rows:
            whole = row["hash_ids"][: row["input_length"] // TRACE_BLOCK]  # servers keep whole blocks
            blocks = [block + copy * most if block else 0 for block in whole]
            at = (row["timestamp"] / 1e3 + dice.random() * 3 + shift) * pace
            calls.append(TraceCall(at, row["input_length"], max(row["output_length"], 1), blocks))
    return sorted(calls, key=lambda call: call.at)


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


def _nothing(call: TraceCall, now: float) -> None:
    del call, now


Run = tuple[Callable[[TraceCall, float], int], Callable[[TraceCall, float], None], Placement | None]


def policies(fleet: ModelledFleet, seed: int, limit: int) -> dict[str, Callable[[], Run]]:
    """Return how each policy places calls."""
    dice, turn, count = random.Random(seed), itertools.count(), len(fleet.replicas)

    def least(call: TraceCall, now: float) -> int:
        del call, now
        return min(fleet.replicas, key=lambda replica: replica.load).number

    def sticky(call: TraceCall, now: float) -> int:
        del now
        return random.Random(str(call.blocks[:2])).randrange(count)

    def longest(call: TraceCall, now: float) -> int:
        found = fleet.caches.longest(call.blocks, 2**62)
        deepest = max(found.values(), default=0)
        usable = [number for number, depth in found.items() if depth == deepest > 1] or range(count)
        del now
        return min(usable, key=lambda number: fleet.replicas[number].load)

    def ours(*, reported: int = 0, oracle: str = "") -> Run:
        placement = Placement(fleet, seed, limit, reported, oracle=oracle)
        return placement.place, placement.ended, placement

    return {
        "round robin": lambda: (lambda call, now: next(turn) % count, _nothing, None),
        "random": lambda: (lambda call, now: dice.randrange(count), _nothing, None),
        "least loaded": lambda: (least, _nothing, None),
        "session": lambda: (sticky, _nothing, None),
        "placement": lambda: ours(),
        "placement, size reported": lambda: ours(reported=fleet.cache_blocks),
        "oracle": lambda: ours(oracle="all"),
        "oracle, same candidates": lambda: ours(oracle="same"),
        "longest prefix": lambda: (longest, _nothing, None),
    }


def main() -> None:
    """Simulate, and print a table."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=Path, default=Path(__file__).with_name("service_times.jsonl"))
    parser.add_argument("--replicas", type=int, nargs="+", default=[32])
    parser.add_argument("--copies", type=float, default=1 / 32, help="copies of the trace for each replica")
    parser.add_argument("--pace", type=float, default=1.0, help="simulated seconds for each of the trace")
    parser.add_argument("--cache", type=int, default=600, help="blocks of 512 tokens in a replica's cache")
    parser.add_argument("--limit", type=int, default=1_000_000, help="entries of the index")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    times = ServiceTimes(given.times)
    for count in given.replicas:
        copies = max(round(count * given.copies), 1)
        print(f"{count} replicas, {copies} copies, cache {given.cache}")
        for name in given.only or policies(ModelledFleet(times, 1, 1), 0, 1):
            fleet = ModelledFleet(times, count, given.cache)
            place, ended, placement = policies(fleet, given.seed, given.limit)[name]()
            calls = trace_calls(given.trace, copies, given.pace, given.seed)
            begun = time.thread_time()
            fleet.serve(calls, place, ended)
            row: dict[str, Any] = figures(calls)
            line = "".join(f"{key} {value:9.3f}  " for key, value in row.items())
            if placement is not None:
                decisions = sorted(placement.decision_s)
                line += f" decision {1e6 * statistics.median(decisions):.0f} µs, p99 {1e6 * decisions[int(len(decisions) * 0.99)]:.0f}"
                line += f" lengths {statistics.mean(each.length for each in placement.chooser._index._replicas.values()) if placement.chooser._index._replicas else 0:.0f}"
                line += f" prefill {1e3 * (placement.chooser._prefill.token_s or 0):.3f} of {1e3 * fleet.prompt_token_s:.3f}"
            print(f"{name:25} {line}  [{time.thread_time() - begun:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
