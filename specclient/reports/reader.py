"""Turn what a ledger holds into reports: from its rows, or, where those are many, from its roll-up.

The rows know everything, and the roll-up is quick: it holds exact sums by hour, and latencies by class. A
report that the roll-up can make is made of it once there are more calls than :data:`MAX_ROWS_READ`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from specclient.ledger.figures import CallTotals
from specclient.ledger.row import LedgerRow
from specclient.ledger.totals import ROLLUP_GROUPS
from specclient.reports.groups import group_readers
from specclient.reports.report import CostReport, ReportBuilder
from specclient.reports.savings import Saving, SavingsBy, savings

__all__ = ["MAX_ROWS_READ", "CallFilter", "LedgerReader", "ReportSet", "matching_rows", "read_reports"]

#: Calls up to which every row is read: for percentiles that are exact, and for what speculation saved.
MAX_ROWS_READ = 20_000


class LedgerReader(Protocol):
    """What a :class:`specclient.ledger.ledger.Ledger` is read by."""

    def iterate(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[LedgerRow]:
        """Yield the rows of a span of time, oldest first, in bounded memory."""
        ...

    def rollup(
        self, since: datetime | None = None, until: datetime | None = None, by: Sequence[str] = ()
    ) -> list[CallTotals]:
        """Return the sums of a span of time, by group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Which calls are meant.

    Attributes:
        since, until: started in ``[since, until)``; None has no bound.
        provider: the endpoint that served them.
        model: the name asked for, with its provider or without, or the route taken.
        tags: carried by them, all of these.
    """

    since: datetime | None = None
    until: datetime | None = None
    provider: str | None = None
    model: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def narrowed(self) -> bool:
        """Whether some calls may be left out."""
        return bool(self.since or self.until or self.provider or self.model or self.tags)

    def takes(self, provider: str, model: str, route: str) -> bool:
        """Tell whether calls of this provider, model and route are among them."""
        wanted = self.model
        names = (model, route, model.partition("/")[2], route.partition("/")[2])
        return (wanted is None or wanted in names) and self.provider in (None, provider)


@dataclass(frozen=True, slots=True)
class ReportSet:
    """What was read at once.

    Attributes:
        reports: one for each of the groupings.
        savings: None where the calls are too many to look at one by one.
        calls: how many there are.
    """

    reports: tuple[CostReport, ...]
    savings: tuple[Saving, ...] | None
    calls: int


def matching_rows(rows: Iterable[LedgerRow], where: CallFilter) -> Iterator[LedgerRow]:
    """Yield the rows that are meant; their time is not looked at."""
    for row in rows:
        if where.takes(row.provider, row.model, row.route) and all(
            row.tags.get(name) == value for name, value in where.tags.items()
        ):
            yield row


def read_reports(
    ledger: LedgerReader,
    groupings: Sequence[Sequence[str]],
    where: CallFilter,
    *,
    by: SavingsBy = "pair",
    most_read: int = MAX_ROWS_READ,
) -> ReportSet:
    """Read reports of the same calls in different groupings, and what speculation saved.

    Args:
        groupings: group names of each report, see :data:`specclient.reports.report.GROUPS`.
        by: of the savings.
        most_read: see :data:`MAX_ROWS_READ`.

    Raises:
        ConfigurationError: an unknown group name, with those there are.
        LedgerError: the ledger cannot be read.
    """
    for names in groupings:
        group_readers(names)
    covered = not where.tags and all(name in ROLLUP_GROUPS for names in groupings for name in names)
    by_hour = _RollupReports(ledger, where)
    calls, first = by_hour.report(groupings[0] if covered and groupings else ())
    if covered and calls > most_read:
        reports = (first, *(by_hour.report(names)[1] for names in groupings[1:]))
        return ReportSet(reports, None, first.total.calls)
    tallies = [ReportBuilder(names) for names in groupings]
    kept: list[LedgerRow] | None = [] if calls <= most_read else None
    counted = 0
    for row in matching_rows(ledger.iterate(where.since, where.until), where):
        counted += 1
        for tally in tallies:
            tally.add_row(row)
        if kept is not None:
            kept.append(row)
    saved = None if kept is None else savings(kept, by)
    return ReportSet(tuple(tally.report() for tally in tallies), saved, counted)


@dataclass(frozen=True, slots=True)
class _RollupReports:
    """Makes reports of the roll-up, grouped more finely where calls are to be left out."""

    ledger: LedgerReader
    where: CallFilter

    def report(self, names: Sequence[str]) -> tuple[int, CostReport]:
        """Return how many calls there are in the span of time, and a report of those that are meant."""
        where, wide = self.where, len(names)
        narrowing = () if where.provider is None and where.model is None else ("provider", "model", "route")
        tally, calls = ReportBuilder(names), 0
        for sums in self.ledger.rollup(where.since, where.until, by=(*names, *narrowing)):
            calls += sums.calls
            if not narrowing or where.takes(*sums.group[wide:]):
                tally.add_totals(sums.group[:wide], sums)
        return calls, tally.report(rounded=True)
