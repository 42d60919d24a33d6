"""The section of the cost of each model that served calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.reports.page.charts import OTHER, track
from specclient.serving.dashboard.elements import (
    Column,
    PageElement,
    cell,
    chart,
    data,
    element,
    nothing,
    number_column,
    table,
)
from specclient.serving.dashboard.ledger_data import BY_ROUTE, MONTH_BY_ROUTE, LedgerData
from specclient.serving.dashboard.model_colors import model_colors
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView
from specclient.serving.dashboard.totals import line_values, total_values

__all__ = ["SECTION"]

#: CSS classes of the columns that narrow screens do not show.
_EXTRA = "number extra"
_COLUMNS = (
    Column("Model"),
    number_column("Cost"),
    Column("", "spread"),
    number_column("Calls"),
    *(Column(title, _EXTRA) for title in ("Failed", "In", "Out", "Accepted", "p50", "p95")),
)


def _values(read: LedgerData) -> SectionValues:
    report = read.reports[BY_ROUTE]
    return {"models": [line_values(line, line.group[0], rounded=report.rounded) for line in report.lines]}


def _view(values: SectionValues, read: LedgerData) -> SectionView:
    report, colors = read.reports[BY_ROUTE], model_colors(read)
    highest = max((line.cost_nano for line in report.lines), default=0) or 1
    rows = [
        element(
            "tr",
            {"data-model": line["name"]},
            element("th", {"scope": "row", "class": "name"}, line["name"]),
            *_cells(line, track(sums.cost_nano / highest, colors.get(line["name"], OTHER))),
        )
        for line, sums in zip(values["models"], report.lines, strict=True)
    ]
    total = total_values(report)
    head = element("th", {"scope": "row"}, "Total")
    rows_and_sum = [*rows, element("tr", {"class": "sum", "id": "models-total"}, head, *_cells(total))]
    title = read.span.title
    return SectionView(
        [title],
        [
            table(f"Cost by model, {title}", _COLUMNS, rows_and_sum)
            if rows
            else nothing(f"No calls in the {title}."),
            element("ul", {"class": "notes soft"}, *(element("li", {}, note) for note in total["notes"])),
        ],
    )


def _cells(line: Mapping[str, Any], bar: str = "") -> list[PageElement]:
    return [
        cell(data(line["cost"], line["cost_text"]), "number strong"),
        element("td", {"class": "spread", "aria-hidden": "true"}, chart(bar)),
        cell(data(line["calls"], f"{line['calls']:,}")),
        cell(f"{line['errors']:,}", f"{_EXTRA} bad" if line["errors"] else _EXTRA),
        cell(data(line["tokens_in"], f"{line['tokens_in']:,}"), _EXTRA),
        cell(data(line["tokens_out"], f"{line['tokens_out']:,}"), _EXTRA),
        *(cell(line[name], _EXTRA) for name in ("acceptance_text", "p50_text", "p95_text")),
    ]


SECTION = LedgerSection(
    id="models",
    title="Cost by model",
    width=3,
    queries=(BY_ROUTE, MONTH_BY_ROUTE),
    values=_values,
    view=_view,
)
