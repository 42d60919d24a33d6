"""Reports of a ledger, read from its rows, or from its sums by hour if there are many rows.

Rows have all details. Sums by hour are fast to read: they hold exact sums, and latencies as a histogram. A
report that needs no more is read from them once there are more calls than :data:`MAX_ROWS_READ`.
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

#: Largest number of calls whose rows are all read, for exact percentiles and the savings of speculation.
MAX_ROWS_READ = 20_000


class LedgerReader(Protocol):
    """The methods for reading of :class:`specclient.ledger.ledger.Ledger`."""

    def iterate(self, since: datetime | None = None, until: datetime | None = None) -> Iterator[LedgerRow]:
        """Yield the rows of a span of time, oldest first, in bounded memory."""
        ...

    def rollup(
        self, since: datetime | None = None, until: datetime | None = None, by: Sequence[str] = ()
    ) -> list[CallTotals]:
        """Return the totals of a span of time, by group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Selects calls; all conditions must hold.

    Attributes:
        since, until: the call started in ``[since, until)``; None is no bound.
        provider: the endpoint that served the call.
        model: the requested model or the chosen route, with or without the provider.
        tags: tags that the call has, with these values.
    """

    since: datetime | None = None
    until: datetime | None = None
    provider: str | None = None
    model: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_conditions(self) -> bool:
        """Whether there is any condition."""
        return bool(self.since or self.until or self.provider or self.model or self.tags)

    def matches(self, provider: str, model: str, route: str) -> bool:
        """Return whether calls of this provider, model and route are selected."""
        wanted = self.model
        names = (model, route, model.partition("/")[2], route.partition("/")[2])
        return (wanted is None or wanted in names) and self.provider in (None, provider)


@dataclass(frozen=True, slots=True)
class ReportSet:
    """Reports of the same calls.

    Attributes:
        reports: one per grouping.
        savings: None if there are too many calls to read one by one.
        calls: number of calls.
    """

    reports: tuple[CostReport, ...]
    savings: tuple[Saving, ...] | None
    calls: int


def matching_rows(rows: Iterable[LedgerRow], where: CallFilter) -> Iterator[LedgerRow]:
    """Yield the rows that a filter selects; its times are not checked."""
    for row in rows:
        if where.matches(row.provider, row.model, row.route) and all(
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
    """Read reports of the same calls in different groupings, and the savings of speculation.

    Args:
        groupings: group names of each report, see :data:`specclient.reports.report.GROUPS`.
        where: selects the calls.
        by: the grouping of the savings.
        most_read: see :data:`MAX_ROWS_READ`.

    Raises:
        ConfigurationError: an unknown group name; the message lists the known ones.
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
    builders = [ReportBuilder(names) for names in groupings]
    kept: list[LedgerRow] | None = [] if calls <= most_read else None
    counted = 0
    for row in matching_rows(ledger.iterate(where.since, where.until), where):
        counted += 1
        for builder in builders:
            builder.add_row(row)
        if kept is not None:
            kept.append(row)
    saved = None if kept is None else savings(kept, by)
    return ReportSet(tuple(builder.report() for builder in builders), saved, counted)


@dataclass(frozen=True, slots=True)
class _RollupReports:
    """Makes reports from sums by hour, grouped more finely if a filter must be applied."""

    ledger: LedgerReader
    where: CallFilter

    def report(self, names: Sequence[str]) -> tuple[int, CostReport]:
        """Return the number of calls in the span of time, and a report of those that the filter selects."""
        where, wide = self.where, len(names)
        narrowing = () if where.provider is None and where.model is None else ("provider", "model", "route")
        builder, calls = ReportBuilder(names), 0
        for totals in self.ledger.rollup(where.since, where.until, by=(*names, *narrowing)):
            calls += totals.calls
            if not narrowing or where.matches(*totals.group[wide:]):
                builder.add_totals(totals.group[:wide], totals)
        return calls, builder.report(rounded=True)
