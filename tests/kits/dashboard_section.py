"""A section of the dashboard that it does not have: calls by status, as a chart and a table."""

from __future__ import annotations

from specclient.reports.page.charts import Bar, bars
from specclient.serving.dashboard.elements import Column, cell, chart, data, element, number_column, table
from specclient.serving.dashboard.ledger_data import LedgerData, ReportQuery
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView

_BY_STATUS = ReportQuery(("status",))


def _values(read: LedgerData) -> SectionValues:
    return {"statuses": {line.group[0]: line.calls for line in read.reports[_BY_STATUS].lines}}


def _view(values: SectionValues, read: LedgerData) -> SectionView:
    found = values["statuses"]
    rows = [element("tr", {}, cell(name, "name"), cell(data(n, f"{n:,}"))) for name, n in found.items()]
    drawn = bars([Bar(name, 0.5, f"{n:,}", "", name) for name, n in found.items()])
    columns = [Column("Status"), number_column("Calls")]
    return SectionView([read.span.title], [chart(drawn), table("Calls by status", columns, rows)])


SECTION = LedgerSection(
    id="statuses", title="Calls by <status>", width=2, queries=(_BY_STATUS,), values=_values, view=_view
)
