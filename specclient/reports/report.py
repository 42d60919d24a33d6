"""Reports: totals of calls, tokens, acceptance, dollars and seconds by group. Pure.

Money is summed in whole nano-dollars, so the groups of a report add up to its total exactly.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import add, attrgetter
from typing import Any

from specclient.errors import ConfigurationError
from specclient.ledger.figures import SUM_NAMES, CallTotals
from specclient.ledger.row import LedgerRow
from specclient.ledger.sums import SUMMED_COLUMNS, sums_of
from specclient.reports.csv_cells import safe_cell
from specclient.reports.groups import GROUPS, TIME_GROUPS, group_readers
from specclient.types.call import BOOKED_LATER

__all__ = ["GROUPS", "CostReport", "ReportBuilder", "parse_since", "report"]

_summed_values = attrgetter(*SUMMED_COLUMNS)
#: Rows of a group that are summed up at a time.
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CostReport:
    """One line per group, and the total.

    Attributes:
        by: the group names.
        lines: the most expensive first; in order of time if the first group name is a span of time.
        rounded: whether percentiles of latency are estimated from a histogram: off by up to a fifth.
    """

    by: tuple[str, ...]
    lines: tuple[CallTotals, ...]
    total: CallTotals
    rounded: bool = False

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the lines as values for JSON; ``cost`` is exact dollars as text."""
        return [self._dict(line) for line in self.lines]

    def to_csv(self) -> str:
        """Return the lines as CSV with a header; unknown values are empty.

        Texts that a spreadsheet would run as formulas begin with an apostrophe.
        """
        out = io.StringIO()
        names = [*self.by, *(key for key in self._dict(self.total) if key not in self.by)]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(safe_cell, names))
        for line in self.to_dicts():
            writer.writerow([safe_cell(line[name]) for name in names])
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return lines and total as values for JSON."""
        total = self._dict(self.total)
        return {"by": list(self.by), "lines": self.to_dicts(), "total": total}

    def _dict(self, line: CallTotals) -> dict[str, Any]:
        return {**dict(zip(self.by, line.group, strict=False)), **line.to_dict()}


class _GroupSums:
    """The sums of one group while calls are added.

    Attributes:
        latencies_s: of the calls that succeeded and were added one by one.
        one_by_one: whether all calls were.
    """

    __slots__ = ("_pending", "_sums", "latencies_s", "one_by_one")

    def __init__(self) -> None:
        self._sums = [0] * len(SUM_NAMES)
        self._pending: list[tuple[Any, ...]] = []
        self.latencies_s: array[float] = array("d")
        self.one_by_one = True

    @property
    def sums(self) -> list[int]:
        """The sums, in the order of ``SUM_NAMES``."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._sums = list(map(add, self._sums, sums_of(pending)))
        return self._sums

    def add_row(self, row: LedgerRow) -> None:
        """Add one call."""
        self._pending.append(_summed_values(row))
        if row.status == "ok" and row.purpose not in BOOKED_LATER:
            self.latencies_s.append(row.latency_s)
        if len(self._pending) >= _BATCH:
            _ = self.sums

    def add_sums(self, sums: Iterable[int]) -> None:
        """Add sums of calls whose latencies are known by class only."""
        self._sums = list(map(add, self._sums, sums))
        self.one_by_one = False

    def add_group(self, other: _GroupSums) -> None:
        """Add the calls of another group."""
        self._sums = list(map(add, self._sums, other.sums))
        self.latencies_s.extend(other.latencies_s)
        self.one_by_one = self.one_by_one and other.one_by_one

    def totals(self, group: tuple[str, ...]) -> CallTotals:
        """Return the totals of the calls added so far."""
        return CallTotals.of(group, self.sums, sorted(self.latencies_s) if self.one_by_one else None)


class ReportBuilder:
    """Sums calls by group while they are added. Memory grows with the number of groups.

    Args:
        by: group names, of :data:`GROUPS` or ``tag:NAME``; an empty sequence gives one line.

    Raises:
        ConfigurationError: an unknown group name; the message lists the known ones.
    """

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self._keys = group_readers(by)
        self._groups: dict[tuple[str, ...], _GroupSums] = {}

    def add_row(self, row: LedgerRow, group: tuple[str, ...] | None = None) -> None:
        """Add one call to its group, or to the group given."""
        self._group(tuple([key(row) for key in self._keys]) if group is None else group).add_row(row)

    def add_totals(self, group: tuple[str, ...], totals: CallTotals) -> None:
        """Add the totals of calls to a group."""
        self._group(group).add_sums(totals.sums.values())

    def _group(self, group: tuple[str, ...]) -> _GroupSums:
        sums = self._groups.get(group)
        if sums is None:
            sums = self._groups[group] = _GroupSums()
        return sums

    def report(self, *, rounded: bool = False) -> CostReport:
        """Return a report of the calls added so far."""
        total = _GroupSums()
        for sums in self._groups.values():
            total.add_group(sums)
        in_time = bool(self.by) and self.by[0] in TIME_GROUPS
        lines = sorted(
            (sums.totals(group) for group, sums in self._groups.items()),
            key=lambda line: (line.group[0] if in_time else "", -line.cost_nano, line.group),
        )
        return CostReport(by=self.by, lines=tuple(lines), total=total.totals(()), rounded=rounded)


def report(rows: Iterable[LedgerRow], by: Sequence[str] = ("provider", "model")) -> CostReport:
    """Sum rows by group.

    Args:
        rows: calls, as ``Ledger.rows`` returns them; read once, and not kept.
        by: group names, of :data:`GROUPS` or ``tag:NAME``; an empty sequence gives one line.

    Raises:
        ConfigurationError: an unknown group name; the message lists the known ones.
    """
    builder = ReportBuilder(by)
    for row in rows:
        builder.add_row(row)
    return builder.report()


def parse_since(text: str, now: datetime) -> datetime:
    """Return the instant that ``7d``, ``24h``, ``30m``, ``2026-01-31`` or an ISO 8601 time stands for.

    Args:
        now: a span is counted back from it; a day or time without a zone is in its time zone.

    Raises:
        ConfigurationError: the text has none of these forms.
    """
    if span := re.fullmatch(r"(\d{1,6})\s*([mhdw])", text.strip().lower()):
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[span[2]]
        try:
            return now - timedelta(**{unit: int(span[1])})
        except OverflowError:
            pass
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; write a span such as '7d', '24h' or '30m', a day such as '2026-01-31', "
            "or an ISO 8601 time"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=now.tzinfo)
