"""Turn loaded models into what their passes cost on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch

from specclient_local.drafting.length import Costs, costs
from specclient_local.model.runner import Part, Runner
from specclient_local.params import MAX_DRAFT_LENGTH
from specclient_local.speculate import DEFAULT_DRAFT_LENGTH

_BATCH = 8
"""Sequences of the largest batch that is timed; of larger ones the cost is extrapolated."""

_ROWS = (1, 2, 3, 5, MAX_DRAFT_LENGTH + 1)


def measure(target: Runner, draft: Runner, slots: int) -> Costs:
    """Time passes of both models, for one sequence and a batch; small contexts cap the row counts."""
    clock = _pass_clock()
    rows = [r for r in _ROWS if r <= target.context]
    batch = min(slots, _BATCH)
    batches = sorted({1, batch})
    seconds = target.time_passes([(size, r) for size in batches for r in rows], clock=clock)
    each = [seconds[i * len(rows) : (i + 1) * len(rows)] for i in range(len(batches))]
    return costs(_draft_steps(target, draft, batches, clock), rows, each, batch)


def _draft_steps(target: Runner, draft: Runner, batches: Seq[int], clock: Callable[[], float]) -> list[float]:
    """Return the seconds of a draft step of so many sequences.

    Timed as it will run: after a pass of the target, which has displaced it from the processor's caches.
    """
    steps = min(DEFAULT_DRAFT_LENGTH, draft.context)
    seconds: list[list[float]] = [[] for _ in batches]
    for _ in range(6):  # the first only warms up
        for taken, batch in zip(seconds, batches, strict=True):
            parts = [Part(slot, [0]) for slot in range(batch)]
            target.score_all(parts)
            begun = clock()
            for _ in range(steps):
                draft.score_all(parts)
            taken.append((clock() - begun) / steps)
            for slot in range(batch):
                target.truncate(slot, 0)
                draft.truncate(slot, 0)
    return [min(taken[1:]) for taken in seconds]


def _pass_clock() -> Callable[[], float]:
    """Return what passes are timed by: the processor's own time where one thread computes."""
    fine = time.get_clock_info("thread_time").resolution <= 1e-6
    return time.thread_time if fine and torch.get_num_threads() == 1 else time.perf_counter
