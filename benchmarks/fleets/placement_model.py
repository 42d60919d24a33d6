"""A modelled fleet of one pool, whose replicas have prefix caches and measured times; a trace's calls."""

from __future__ import annotations

import gzip
import heapq
import itertools
import json
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from depth_by_load import BATCH, ServiceTimes

from specclient.routing.replicas.prefix_index import PrefixIndex
from specclient.routing.replicas.replica_chooser import ReplicaChoice

__all__ = ["TRACE_BLOCK", "ModelledFleet", "TraceCall", "trace_calls"]

#: Tokens of a block of the trace.
TRACE_BLOCK = 512
TASKS = ("code", "text")


@dataclass(slots=True)
class TraceCall:
    """One call: its arrival and work, and the times that it saw."""

    at: float
    prompt: int
    tokens: int
    blocks: list[int]
    session: str
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
    """Replicas with the measured times, and caches of which the least recently used blocks are evicted.

    Args:
        times: the measured times.
        replicas: their number.
        cache_blocks: blocks of the trace in the cache of each.
        lengths: the draft lengths among which each step has the one with the most tokens a second.
    """

    def __init__(
        self, times: ServiceTimes, replicas: int, cache_blocks: int, lengths: Sequence[int] = (2,)
    ) -> None:
        self.replicas = [ModelledReplica(number) for number in range(replicas)]
        self.caches = PrefixIndex(2**62)
        for number in range(replicas):
            self.caches.resize(number, cache_blocks)
        self.cache_blocks = cache_blocks
        self.read: Callable[[TraceCall], None] = _nothing
        self.prompt_token_s = times.prompt_token_s
        self.steps_s, self.tokens = [0.0], [1.0]
        for count in range(1, BATCH + 1):
            found = {k: (times.step_s(k, count), _tokens(times, k)) for k in lengths}
            step_s, tokens = max(found.values(), key=lambda each: each[1] / each[0])
            self.steps_s.append(step_s)
            self.tokens.append(tokens)

    def token_s(self, in_progress: float) -> float:
        """Return the seconds of a token by the requests in progress."""
        whole = min(max(int(in_progress), 1), BATCH)
        return self.steps_s[whole] / self.tokens[whole] * max(in_progress / BATCH, 1.0)

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
                call.left -= replica.steps * self.tokens[len(replica.running)]
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
        count = len(replica.running)
        replica.begun, replica.step_s = now, self.steps_s[count]
        least = min(call.left for call in replica.running)
        replica.steps = max(math.ceil(least / self.tokens[count]), 1)
        return now + replica.steps * replica.step_s


def _nothing(call: TraceCall) -> None:
    del call


def _tokens(times: ServiceTimes, length: int) -> float:
    return statistics.mean(times.tokens(length, task) for task in TASKS)


def trace_calls(file: Path, copies: int, seed: int) -> list[TraceCall]:
    """Return the calls of so many copies of the trace, which begin within a minute."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    dice, calls = random.Random(seed), []
    most = 1 + max(max(row["hash_ids"]) for row in rows)
    for copy in range(copies):
        shift = dice.random() * 60.0 if copies > 1 else 0.0  # timestamps come in steps of three seconds
        for row in rows:
            whole = row["hash_ids"][: row["input_length"] // TRACE_BLOCK]  # servers keep whole blocks
            blocks = [block + copy * most if block else 0 for block in whole]
            at = row["timestamp"] / 1e3 + dice.random() * 3 + shift
            session = f"{copy} {row['hash_ids'][:2]}"  # the first block is the system's prompt
            calls.append(TraceCall(at, row["input_length"], max(row["output_length"], 1), blocks, session))
    return sorted(calls, key=lambda call: call.at)
