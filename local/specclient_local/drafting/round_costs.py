"""The cost of a round, from measured seconds of passes: by draft shape, batch and context.

The unit is one plain step of the target for one sequence early in its context. The cost of a batch grows with
its rows, and the share of attention grows with the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from specclient_local.drafting.drafter import TreeWidths, shape_size

CONTEXT_STEP = 128
"""Positions to which a context is rounded, so that costs can be cached."""


@dataclass(frozen=True, slots=True)
class RecordedCosts:
    """Costs of rounds that were recorded for a number of slots; rounds of fewer sequences cost the same.

    Attributes:
        slots: number of slots.
        draft: one step of the draft for all of them.
        verify: for K = 0, 1, …, the target's pass over K + 1 rows of each.
    """

    slots: int
    draft: float
    verify: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Costs of passes, in plain steps of the target for one sequence.

    Attributes:
        draft: one step of the draft for one sequence.
        verify: for K = 0, 1, …, the target's pass over K + 1 rows of one sequence; its length bounds K.
        slots: number of sequences in the measured batch; 1 if only one can run.
        full_draft, full_verify: the same for that batch, each sequence having that many rows.
        row: cost of each further row of a step of the draft, for one sequence.
        overhead: cost per sequence of a round of several besides its passes: sampling, verification,
            bookkeeping.
        level: additional cost per level of a tree, for one sequence: a chain is drafted in one call, whereas
            a tree has a pass per level and picks nodes between them.
        drawn: additional cost per token of a chain if tokens are drawn instead of picked.
        tree_overhead: additional cost of a round whose draft is a tree.
        context: positions in the caches when measured.
        recorded: costs of recorded rounds, by ascending slots, where rounds are recorded; more sequences than
            the last has run in several rounds.
        far: the same further into the context; None if the context is too short to measure.
    """

    draft: float
    verify: tuple[float, ...]
    slots: int = 1
    full_draft: float = 0.0
    full_verify: tuple[float, ...] = ()
    row: float = 0.0
    overhead: float = 0.0
    level: float = 0.0
    drawn: float = 0.0
    tree_overhead: float = 0.0
    context: int = 0
    recorded: tuple[RecordedCosts, ...] = ()
    far: RoundCosts | None = None

    def __hash__(self) -> int:
        """Hash the fields that usually differ: every round looks up a cached choice by its costs."""
        return hash((self.draft, self.slots, self.context))

    def at(self, context: int) -> RoundCosts:
        """Return the costs at a context length, interpolated linearly between the two measured ones."""
        return self if self.far is None else _between(self, self.far, context // CONTEXT_STEP * CONTEXT_STEP)

    def sampled(self) -> RoundCosts:
        """Return the costs for requests whose draft tokens are drawn."""
        return replace(
            self,
            draft=self.draft + self.drawn,
            full_draft=self.full_draft + self.slots * self.drawn,
            level=max(0.0, self.level - self.drawn),
            recorded=tuple(replace(each, draft=each.draft + self.drawn) for each in self.recorded),
            drawn=0.0,
            far=None if self.far is None else self.far.sampled(),
        )

    def round(self, length: int, drafting: int = 1, others: int = 0) -> float:
        """Return the cost of a round in which ``drafting`` sequences draft ``length`` tokens and ``others``
        none.
        """
        return self.tree((1,) * length, drafting, others)

    def chains(self, lengths: Sequence[int], others: int = 0) -> float:
        """Return the cost of a round whose sequences draft chains of these lengths, and ``others`` none."""
        levels = range(max(lengths, default=0))
        steps = (self.draft_step(sum(length > level for length in lengths)) for level in levels)
        return sum(steps) + self.target_pass(sum(lengths), len(lengths) + others)

    def tree(self, widths: TreeWidths, drafting: int = 1, others: int = 0) -> float:
        """Return the cost of a round in which ``drafting`` sequences draft such trees and ``others``
        nothing.
        """
        sequences = drafting + others
        if self.recorded:
            return self._recorded_round(len(widths), shape_size(widths), sequences)
        # Rows that the draft computes in each of its passes: the root, then the nodes of all levels but the
        # last.
        levels: list[int] = [] if not widths else [1]
        for width in widths[:-1]:
            levels.append(levels[-1] * width)
        tree = shape_size(widths) > len(widths)
        step = self.draft_step(drafting) + (self.level if tree else 0.0)
        # `row` was measured for one sequence, so it is scaled by the cost of a step in this batch.
        scale = step / self.draft if self.draft else 1.0
        drafts = len(levels) * step + (sum(levels) - len(levels)) * self.row * scale
        verified = self.target_pass(shape_size(widths) * drafting, sequences)
        return drafts + verified + (self.tree_overhead * drafting if tree else 0.0)

    def draft_step(self, sequences: int) -> float:
        """Return the cost of one step of the draft for ``sequences``, at least one."""
        return self._for_batch(self.draft, self.full_draft, sequences)

    def target_pass(self, drafted: int, sequences: int) -> float:
        """Return the cost of the target's pass over the roots of ``sequences`` and all drafted tokens, and of
        what is done besides it.
        """
        extra = drafted / sequences
        passes = self._for_batch(
            interpolate_costs(self.verify, extra), interpolate_costs(self.full_verify, extra), sequences
        )
        return passes + (self.overhead * sequences if sequences > 1 else 0.0)

    def _recorded_round(self, steps: int, drafted: int, sequences: int) -> float:
        """Return the cost of recorded rounds, in which all slots have as many rows as one that drafts."""
        last = self.recorded[-1]
        whole, left = divmod(sequences, last.slots)
        rounds = [last] * whole
        if left:
            rounds.append(next(each for each in self.recorded if each.slots >= left))
        return sum(steps * each.draft + interpolate_costs(each.verify, drafted) for each in rounds)

    def _for_batch(self, alone: float, full: float, sequences: int) -> float:
        """Interpolate linearly between one sequence and the measured batch, or extrapolate beyond it."""
        return alone if self.slots < 2 else alone + (full - alone) * (sequences - 1) / (self.slots - 1)


@lru_cache(maxsize=256)
def _between(near: RoundCosts, far: RoundCosts, context: int) -> RoundCosts:
    share = max(0.0, (context - near.context) / (far.context - near.context))

    def mixed(a: float, b: float) -> float:
        return max(0.0, a + share * (b - a))

    def table(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        # The far table may be shorter: a context that ends sooner has room for fewer rows.
        return tuple(mixed(one, b[min(k, len(b) - 1)]) for k, one in enumerate(a)) if b else tuple(a)

    return replace(
        near,
        draft=mixed(near.draft, far.draft),
        verify=table(near.verify, far.verify),
        full_draft=mixed(near.full_draft, far.full_draft),
        full_verify=table(near.full_verify, far.full_verify),
        recorded=tuple(
            RecordedCosts(a.slots, mixed(a.draft, b.draft), table(a.verify, b.verify))
            for a, b in zip(near.recorded, far.recorded, strict=True)
        ),
        context=context,
        far=None,
    )


def combined_costs(drafts: Sequence[RoundCosts]) -> RoundCosts:
    """Return the costs of rounds in which several draft models draft one after another."""
    first, count = drafts[0], len(drafts)
    fars = [cost.far for cost in drafts if cost.far is not None]
    return replace(
        first,
        draft=sum(cost.draft for cost in drafts),
        full_draft=sum(cost.full_draft for cost in drafts),
        row=sum(cost.row for cost in drafts),
        level=sum(cost.level for cost in drafts),
        drawn=sum(cost.drawn for cost in drafts),
        verify=_per_drafter(first.verify, count),
        full_verify=_per_drafter(first.full_verify, count),
        recorded=tuple(
            RecordedCosts(each[0].slots, sum(one.draft for one in each), _per_drafter(each[0].verify, count))
            for each in zip(*(cost.recorded for cost in drafts), strict=True)
        ),
        far=combined_costs(fars) if len(fars) == count else None,
    )


def _per_drafter(table: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Return the costs of 0, 1, … tokens from each of ``count`` drafters."""
    return table[::count]


def costs_per_row_count(rows: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Return the seconds of 1, 2, … rows by linear interpolation between measured counts, made monotonic."""
    rising = list(accumulate(seconds, max))
    found: list[float] = []
    for count in range(1, rows[-1] + 1):
        right = next(i for i, r in enumerate(rows) if r >= count)
        left = max(0, right - 1)
        span = rows[right] - rows[left]
        share = (count - rows[left]) / span if span else 0.0
        found.append(rising[left] + share * (rising[right] - rising[left]))
    return found


def interpolate_costs(table: Sequence[float], place: float) -> float:
    """Return a table's value between its entries, by linear interpolation; 0 for an empty table.

    Beyond its end the last slope continues: trees may have more rows than the longest chain.
    """
    if not table:
        return 0.0
    last = len(table) - 1
    if place >= last:
        return table[last] + (place - last) * (table[last] - table[max(0, last - 1)])
    low = int(place)
    return table[low] + (place - low) * (table[low + 1] - table[low])
