"""Timing plans: which passes a calibration times and how often, and the clock for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from specclient_local.request.params import MAX_PREDICTED_LENGTH

_BUDGET_S = 1.0
"""Approximate seconds for all timed passes of the target; those of a draft take a fraction of it."""


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """Which passes to time, and how often.

    Attributes:
        rows: row counts of the passes timed for one sequence, ascending.
        turns: repetitions of each, after a warm-up; with 0, the warm-up itself is the measurement.
        full: rows per sequence of the passes timed for a batch; where empty, the cost of a batch is estimated
            from the cost of rows.
        far: whether passes far into the context are timed.
        least_s: shortest plain step, in seconds, for which this plan is used.
    """

    rows: tuple[int, ...]
    turns: int
    full: tuple[int, ...] = ()
    far: bool = True
    least_s: float = 0.0

    def fits(self, step: float, batch: int) -> bool:
        """Return whether the plan suits a model whose plain step takes ``step`` seconds."""
        return step >= self.least_s and self.steps(batch) * step <= _BUDGET_S

    def steps(self, batch: int) -> float:
        """Return the plan's approximate duration in plain steps; each further row counts as 0.1 steps."""
        counts = [*self.rows, *(batch * rows for rows in self.full if batch > 1)]
        return (self.turns + 1) * sum(0.9 + 0.1 * rows for rows in counts)


LONGEST = MAX_PREDICTED_LENGTH + 1
"""Rows of the longest pass: a request's own prediction, and the token before it."""

PLANS = (
    TimingPlan((1, 2, 3, 5, 9, LONGEST), 8, full=(1, 5, LONGEST), least_s=0.0005),
    TimingPlan((1, 2, 3, 5, 9, LONGEST), 3, full=(1, 2, 3, 5)),
    TimingPlan((1, 2, 3, 6, LONGEST), 1, full=(1, 2, 3)),
    TimingPlan((1, 5, LONGEST), 1),
    TimingPlan((1, LONGEST), 0, far=False),
)
"""The plans from the most to the least thorough one; the first that suits the model is used."""


def pass_clock(device: torch.device) -> Callable[[], float]:
    """Return the clock for passes: CPU time where one thread computes, else wall-clock time.

    On a CUDA device the clock synchronizes first, since a pass returns as soon as it is queued.
    """
    if device.type == "cuda":
        return lambda: _synchronized_time(device)
    precise = time.get_clock_info("thread_time").resolution <= 1e-6
    return time.thread_time if precise and torch.get_num_threads() == 1 else time.perf_counter


def _synchronized_time(device: torch.device) -> float:
    torch.cuda.synchronize(device)
    return time.perf_counter()
