"""The latest calls in memory, for a server whose ledger is off; readable like a ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from specclient.ledger.figures import CallTotals
from specclient.ledger.rollup import hour_floor
from specclient.ledger.row import LedgerRow, encoded_rows
from specclient.ledger.store import RowValues
from specclient.ledger.totals import totals_by_group
from specclient.types.call import Call

__all__ = ["RecentCalls"]


class RecentCalls:
    """The latest calls of this process, in memory.

    Args:
        most: maximum number of rows.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._rows: deque[RowValues] = deque(maxlen=most)

    def add(self, call: Call) -> None:
        """Remember a finished call."""
        self._rows.extend(encoded_rows(call))

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        """Return the calls that started in ``[since, until)``, oldest first; only the newest ``limit``."""
        found = sorted(
            map(LedgerRow.from_values, tuple(self._rows)), key=lambda row: (row.started_at, row.id)
        )
        within = [
            row
            for row in found
            if (since is None or row.started_at >= since) and (until is None or row.started_at < until)
        ]
        return within if limit is None else within[max(len(within) - limit, 0) :]

    def iterate(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[LedgerRow]:
        """Yield the rows of :meth:`rows`."""
        yield from self.rows(since, until)

    def rollup(
        self, since: datetime | None = None, until: datetime | None = None, by: Sequence[str] = ()
    ) -> list[CallTotals]:
        """Return sums by group, like a ledger."""
        chosen = {row.id for row in self.rows(since, until)}
        return totals_by_group(
            None, since, until, by, [row for row in tuple(self._rows) if str(row[0]) in chosen]
        )

    def tag_costs(
        self, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, Mapping[str, str], int]]:
        """Yield the hour, the tags and the nano-dollars of each call with tags, like a ledger."""
        for row in self.rows(since, until):
            if row.tags and row.cost_nano:
                yield hour_floor(row.started_at), row.tags, row.cost_nano
