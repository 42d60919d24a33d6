"""Turn loaded models into what their passes cost on this machine, in a second or two whatever their size."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch

from specclient_local.drafting.costs import Costs, costs
from specclient_local.drafting.growth import BREADTH
from specclient_local.model.base import Model
from specclient_local.model.runner import Part
from specclient_local.params import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH
from specclient_local.speculate import DEFAULT_DRAFT_LENGTH
from specclient_local.tree import ROOT, TokenTree

_BATCH = 8
"""Sequences of the largest batch that is timed; of larger ones the cost is extrapolated."""

_NEAR = 64
_FAR = 2048
"""Positions in the caches at the two places in a context that are timed."""

_BUDGET_S = 1.0
"""About how long the target's passes may take in all; a draft's take a fraction."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How closely to measure.

    Attributes:
        rows: of the passes timed, ascending.
        turns: each is timed, after one that only warms up; 0 where that one has to count.
    """

    rows: tuple[int, ...]
    turns: int

    def passes(self, batches: int) -> int:
        """Return how many passes that is, with few rows and a batch's rows taken together."""
        return 2 * batches * len(self.rows) * (self.turns + 1)


_PLANS = (
    Plan((1, 2, 3, 5, 9, MAX_PREDICTED_LENGTH + 1), 5),
    Plan((1, 3, 6, MAX_PREDICTED_LENGTH + 1), 2),
    Plan((1, 5, MAX_PREDICTED_LENGTH + 1), 0),
)


class Calibration:
    """A target's passes, measured when made, and with them what drafts cost beside it.

    Args:
        target: all of whose slots are free.
        slots: sequences that may run at once.
        clock: of passes; by default the processor's own time where one thread computes.

    Attributes:
        target: what its passes cost, and drafts that cost nothing.
    """

    def __init__(self, target: Model, slots: int, clock: Callable[[], float] | None = None) -> None:
        self._runner = target
        self._clock = clock or _pass_clock()
        self._batches = sorted({1, min(slots, _BATCH)})
        target.time_passes([(1, 1)], repeats=0, clock=self._clock)  # wakes what computes
        (step,) = target.time_passes([(1, 1)], repeats=0, clock=self._clock)
        self._plan = next((p for p in _PLANS if p.passes(len(self._batches)) * step <= _BUDGET_S), _PLANS[-1])
        near = self._time(min(_NEAR, self._most(target)), self._plan)
        self._unit = near[0][0]
        self._places = [min(_NEAR, self._most(target))]
        tables = [self._costs(near, self._plan)]
        far = min(_FAR, self._most(target))
        if far >= 4 * _NEAR:
            self._places.append(far)
            plan = Plan(self._plan.rows[:: len(self._plan.rows) - 1], min(self._plan.turns, 2))
            tables.append(self._costs(self._time(far, plan), plan))
        self.target = self._joined(tables)

    def draft(self, draft: Model) -> Costs:
        """Return what rounds cost with a draft model's steps, all of whose slots are free."""
        tables: list[Costs] = []
        measured = (self.target, self.target.far)
        for place, cost in zip(self._places, measured, strict=False):
            if cost is None:
                break
            steps = [self._draft_step(draft, place, batch) / self._unit for batch in self._batches]
            wide = self._draft_step(draft, place, 1, rows=BREADTH) / self._unit
            row = max(0.0, wide - steps[0]) / (BREADTH - 1)
            verify = cost.verify[: MAX_DRAFT_LENGTH + 1]
            full = cost.full_verify[: MAX_DRAFT_LENGTH + 1]
            tables.append(
                replace(cost, draft=steps[0], full_draft=steps[-1], row=row, verify=verify, full_verify=full)
            )
        return self._joined(tables)

    def _most(self, runner: Model) -> int:
        return max(0, runner.context - MAX_PREDICTED_LENGTH - 1)

    def _time(self, at: int, plan: Plan) -> list[list[float]]:
        """Return the target's seconds by batch and rows; a small context caps the row counts."""
        rows = [r for r in plan.rows if r <= self._runner.context]
        shapes = [(size, r) for size in self._batches for r in rows]
        taken = self._runner.time_passes(shapes, at=at, repeats=plan.turns, clock=self._clock)
        return [taken[i * len(rows) : (i + 1) * len(rows)] for i in range(len(self._batches))]

    def _costs(self, seconds: Seq[Seq[float]], plan: Plan) -> Costs:
        rows = [r for r in plan.rows if r <= self._runner.context]
        found = costs([0.0], rows, seconds, self._batches[-1])
        scale = seconds[0][0] / self._unit
        return replace(
            found,
            verify=tuple(scale * cost for cost in found.verify),
            full_verify=tuple(scale * cost for cost in found.full_verify),
        )

    def _joined(self, tables: Seq[Costs]) -> Costs:
        near, *more = [
            replace(table, context=place, far=None)
            for table, place in zip(tables, self._places, strict=False)
        ]
        return replace(near, far=more[0] if more else None)

    def _draft_step(self, draft: Model, at: int, batch: int, rows: int = 1) -> float:
        """Return the seconds of a draft step of so many sequences, ``rows`` siblings each.

        Timed as it will run: after a pass of the target, which has displaced it from the processor's
        caches.
        """
        steps = min(DEFAULT_DRAFT_LENGTH, max(1, draft.context // (rows + 1)))
        at = max(0, min(at, draft.context - steps * rows - 1))
        tree = TokenTree()
        for _ in range(rows - 1):
            tree.add(ROOT, 0)
        parts = [Part(slot, [0], tree) for slot in range(batch)]
        taken: list[float] = []
        for _ in range(self._plan.turns + 1):
            self._runner.score_all([Part(slot, [0]) for slot in range(batch)])
            for slot in range(batch):
                draft.pretend(slot, at)
            begun = self._clock()
            for _ in range(steps):
                draft.score_all(parts)
            taken.append((self._clock() - begun) / steps)
            for slot in range(batch):
                self._runner.truncate(slot, 0)
                draft.truncate(slot, 0)
        return min(taken[1:] or taken)


def several(drafts: Seq[Costs]) -> Costs:
    """Return what rounds cost in which each of several draft models drafts, one after another."""
    first, count = drafts[0], len(drafts)
    fars = [cost.far for cost in drafts if cost.far is not None]
    return replace(
        first,
        draft=sum(cost.draft for cost in drafts),
        full_draft=sum(cost.full_draft for cost in drafts),
        row=sum(cost.row for cost in drafts),
        verify=_every(first.verify, count),
        full_verify=_every(first.full_verify, count),
        far=several(fars) if len(fars) == count else None,
    )


def _every(table: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Return what 0, 1, … guesses of each of so many drafters cost."""
    return table[::count]


def _pass_clock() -> Callable[[], float]:
    """Return what passes are timed by: the processor's own time where one thread computes."""
    fine = time.get_clock_info("thread_time").resolution <= 1e-6
    return time.thread_time if fine and torch.get_num_threads() == 1 else time.perf_counter
