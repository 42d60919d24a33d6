"""Turn the ledger's rows into sums: calls, tokens, acceptance, dollars and seconds, grouped as asked. Pure.

Money is summed in whole nano-dollars, so the groups of any report add up to its total exactly.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.reports.groups import GROUPS, TIME_GROUPS, group_readers
from specclient.reports.lines import ReportLine, TotalsBuilder

__all__ = ["GROUPS", "CostReport", "ReportBuilder", "ReportLine", "parse_since", "report"]


@dataclass(frozen=True, slots=True)
class CostReport:
    """Lines by group and their total.

    Attributes:
        by: what was grouped by.
        lines: dearest first; in order of time where the first of ``by`` is one.
        rounded: whether percentiles of latency are those of a roll-up: up to a fifth beside the truth.
    """

    by: tuple[str, ...]
    lines: tuple[ReportLine, ...]
    total: ReportLine
    rounded: bool = False

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the lines as plain values; ``cost`` is exact dollars as text."""
        return [self._dict(line) for line in self.lines]

    def to_csv(self) -> str:
        """Return the lines as CSV with a header; unknown figures are empty."""
        out = io.StringIO()
        names = [*self.by, *(key for key in self._dict(self.total) if key not in self.by)]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_dicts())
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the whole as values that JSON can hold."""
        total = self._dict(self.total)
        return {"by": list(self.by), "lines": self.to_dicts(), "total": total}

    def _dict(self, line: ReportLine) -> dict[str, Any]:
        figures = asdict(line)
        del figures["group"]
        return {**dict(zip(self.by, line.group, strict=False)), **figures, "cost": f"{line.cost:f}"}


class ReportBuilder:
    """Sums calls by group while they are added, in memory that grows with the groups.

    Args:
        by: group names, of :data:`GROUPS` or ``tag:NAME``; none gives one line.

    Raises:
        ConfigurationError: an unknown group name, with those there are.
    """

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self._keys = group_readers(by)
        self._groups: dict[tuple[str, ...], TotalsBuilder] = {}

    def add(self, row: LedgerRow) -> None:
        """Add one call."""
        self.at(tuple([key(row) for key in self._keys])).add(row)

    def at(self, group: tuple[str, ...]) -> TotalsBuilder:
        """Return the sums of a group, to be added to."""
        sums = self._groups.get(group)
        if sums is None:
            sums = self._groups[group] = TotalsBuilder()
        return sums

    def report(self, *, rounded: bool = False) -> CostReport:
        """Return what was added so far."""
        total = TotalsBuilder()
        for sums in self._groups.values():
            total.join(sums)
        in_time = bool(self.by) and self.by[0] in TIME_GROUPS
        lines = sorted(
            (sums.line(group) for group, sums in self._groups.items()),
            key=lambda line: (line.group[0] if in_time else "", -line.cost_nano, line.group),
        )
        return CostReport(by=self.by, lines=tuple(lines), total=total.line(()), rounded=rounded)


def report(rows: Iterable[LedgerRow], by: Sequence[str] = ("provider", "model")) -> CostReport:
    """Sum rows by group.

    Args:
        rows: calls, as ``Ledger.rows`` gives them; read once, and not kept.
        by: group names, of :data:`GROUPS` or ``tag:NAME``; none gives one line.

    Raises:
        ConfigurationError: an unknown group name, with those there are.
    """
    tally = ReportBuilder(by)
    for row in rows:
        tally.add(row)
    return tally.report()


def parse_since(text: str, now: datetime) -> datetime:
    """Return the instant that ``7d``, ``24h``, ``30m``, ``2026-01-31`` or an ISO 8601 time means.

    Args:
        now: what a span is counted back from; a day or time without a zone is in its time zone.

    Raises:
        ConfigurationError: anything else.
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
            f"{text!r} is no time; write a span such as '7d', '24h' or '30m', a day such as '2026-01-31', "
            "or an ISO 8601 time"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=now.tzinfo)
