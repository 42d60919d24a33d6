"""The part of a ledger that the dashboard reads for a time span: reports, and the latest calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

from specclient.ledger.row import LedgerRow
from specclient.reports.anomalies import AlarmSource
from specclient.reports.reader import CallFilter, read_reports
from specclient.reports.report import CostReport
from specclient.serving.dashboard.spans import SPANS, FigureSpan

__all__ = [
    "BY_ROUTE",
    "LATEST",
    "MONTH_BY_ROUTE",
    "STEP",
    "CallSource",
    "LedgerData",
    "ReportQuery",
    "read_data",
]

#: Maximum number of calls that are read one by one, at 40 to 200 µs each in a thread that competes with the
#: engine for the GIL: 18,000 took 3.8 s and delayed streams by 160 ms. Beyond it, sums by hour are read.
LATEST = 2000
#: The group of a step of the chosen span, in :attr:`ReportQuery.by`.
STEP = "step"


class CallSource(AlarmSource, Protocol):
    """The interface of a ledger that the dashboard reads."""

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        """Return the newest ``limit`` calls that started in ``[since, until)``, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """A report that sections read.

    Attributes:
        by: names of its groups, see :data:`specclient.reports.report.GROUPS`. :data:`STEP` is the group of
            a step of the chosen span; if reports have no such group, the report is not read. With many calls,
            reports are fast only if all groups of the page are in
            :data:`~specclient.ledger.totals.ROLLUP_GROUPS`.
        span: a key of :data:`~specclient.serving.dashboard.spans.SPANS`; None is the chosen span.
    """

    by: tuple[str, ...]
    span: str | None = None


#: The calls of the chosen span by model, under the name of its route.
BY_ROUTE = ReportQuery(("route",))
#: The calls of the last 30 days by day and model.
MONTH_BY_ROUTE = ReportQuery(("day", "route"), span="30d")


@dataclass(frozen=True)
class LedgerData:
    """The calls of a time span.

    Attributes:
        source: the ledger, or the recent calls of a server without one.
        span: the chosen span.
        now: UTC.
        latest: the latest calls of the span, at most :data:`LATEST`, oldest first.
        reports: the reports that the sections need.
    """

    source: CallSource
    span: FigureSpan
    now: datetime
    latest: list[LedgerRow]
    reports: Mapping[ReportQuery, CostReport]

    @cached_property
    def first_token_s(self) -> list[float]:
        """Seconds to the first token of the latest calls that succeeded, in ascending order."""
        return sorted(row.ttft_s for row in self.latest if row.status == "ok" and row.ttft_s is not None)


def read_data(
    source: CallSource, span: FigureSpan, now: datetime, queries: Iterable[ReportQuery]
) -> LedgerData:
    """Read reports and the latest calls; each span of time is read once.

    Args:
        source: a ledger, or the recent calls of a server without one.
        span: the chosen span.
        now: UTC.
        queries: the reports to read.

    Raises:
        ConfigurationError: an unknown group name; the message lists the known ones.
        LedgerError: the ledger cannot be read; the message names it and what to do.
    """
    groups: dict[str | None, dict[ReportQuery, list[str]]] = {}
    for query in queries:
        if STEP not in query.by or span.group is not None:
            names = [(span.group or name) if name == STEP else name for name in query.by]
            groups.setdefault(query.span, {})[query] = names
    reports: dict[ReportQuery, CostReport] = {}
    for name, group in groups.items():
        since = (span if name is None else SPANS[name]).begins(now)
        read = read_reports(source, [*group.values()], CallFilter(since=since), most_read=LATEST).reports
        reports |= zip(group, read, strict=True)
    return LedgerData(source, span, now, source.rows(span.begins(now), limit=LATEST), reports)
