"""Turn measured seconds of passes into what a round costs, by its draft, its company and its context.

The unit is one plain step of the target for one sequence early in its context. Where several requests
share a pass its rows are what is paid for; far into a context attention takes a growing share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from specclient_local.drafting.base import Widths, size

_GRAIN = 128
"""Positions between which costs are taken to be the same."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What passes cost, in plain steps of the target for one sequence.

    Attributes:
        draft: one step of the draft for one sequence.
        verify: for K = 0, 1, …, the target's pass over K + 1 rows of one sequence; its length bounds K.
        slots: sequences of the batch measured beside it; 1 where only one can run.
        full_draft, full_verify: the same for that batch, each sequence having so many rows.
        row: what each further row adds to a step of the draft, for one sequence.
        beside: what a round takes that is no pass, for each sequence: drawing, verifying, bookkeeping.
        context: positions in the caches when measured.
        far: the same further into the context; None where the models have none.
    """

    draft: float
    verify: tuple[float, ...]
    slots: int = 1
    full_draft: float = 0.0
    full_verify: tuple[float, ...] = ()
    row: float = 0.0
    beside: float = 0.0
    context: int = 0
    far: Costs | None = None

    def at(self, context: int) -> Costs:
        """Return the costs that far into a context, on the line through the two places measured."""
        return self if self.far is None else _between(self, self.far, context // _GRAIN * _GRAIN)

    def round(self, length: int, drafting: int = 1, others: int = 0) -> float:
        """Return what a round costs in which some sequences draft ``length`` tokens and others none."""
        return self.tree((1,) * length, drafting, others)

    def tree(self, widths: Widths, drafting: int = 1, others: int = 0) -> float:
        """Return what a round costs in which some sequences draft trees of these widths and others none."""
        sequences = drafting + others
        levels: list[int] = [] if not widths else [1]
        for width in widths[:-1]:
            levels.append(levels[-1] * width)
        step = self._company(self.draft, self.full_draft, drafting)
        dearer = step / self.draft if self.draft else 1.0
        drafts = len(levels) * step + (sum(levels) - len(levels)) * self.row * dearer
        extra = size(widths) * drafting / sequences  # rows beyond the root, on average
        passes = self._company(entry(self.verify, extra), entry(self.full_verify, extra), sequences)
        return drafts + passes + self.beside * sequences

    def _company(self, alone: float, full: float, sequences: int) -> float:
        """Interpolate between one sequence and the batch measured, or extrapolate beyond it."""
        return alone if self.slots < 2 else alone + (full - alone) * (sequences - 1) / (self.slots - 1)


@lru_cache(maxsize=256)
def _between(near: Costs, far: Costs, context: int) -> Costs:
    share = max(0.0, (context - near.context) / (far.context - near.context))

    def mixed(a: float, b: float) -> float:
        return max(0.0, a + share * (b - a))

    def table(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        # The far table may be shorter: a context that ends sooner has room for fewer rows.
        return tuple(mixed(one, b[min(k, len(b) - 1)]) for k, one in enumerate(a)) if b else tuple(a)

    return Costs(
        mixed(near.draft, far.draft),
        table(near.verify, far.verify),
        near.slots,
        mixed(near.full_draft, far.full_draft),
        table(near.full_verify, far.full_verify),
        near.row,
        near.beside,
        context,
    )


def each_count(rows: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Return the seconds of 1, 2, … rows, given those of some ascending counts; more never cost less."""
    rising = list(accumulate(seconds, max))
    found: list[float] = []
    for count in range(1, rows[-1] + 1):
        right = next(i for i, r in enumerate(rows) if r >= count)
        left = max(0, right - 1)
        span = rows[right] - rows[left]
        share = (count - rows[left]) / span if span else 0.0
        found.append(rising[left] + share * (rising[right] - rising[left]))
    return found


def entry(table: Sequence[float], place: float) -> float:
    """Return a table's value between its entries; 0 of an empty one.

    Beyond its end it goes on as it ended: trees may have more rows than the longest chain.
    """
    if not table:
        return 0.0
    last = len(table) - 1
    if place >= last:
        return table[last] + (place - last) * (table[last] - table[max(0, last - 1)])
    low = int(place)
    return table[low] + (place - low) * (table[low + 1] - table[low])
