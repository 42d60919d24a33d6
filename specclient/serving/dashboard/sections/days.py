"""The section of the cost of each of the last 30 days, by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from specclient.reports.page.charts import OTHER, Series, columns, legend
from specclient.reports.page.sections import format_axis_dollars
from specclient.reports.report import CostReport
from specclient.reports.text import cost_of
from specclient.serving.dashboard.elements import (
    Column,
    PageElement,
    cell,
    chart,
    data,
    details,
    element,
    nothing,
    number_column,
    table,
)
from specclient.serving.dashboard.ledger_data import MONTH_BY_ROUTE, LedgerData
from specclient.serving.dashboard.model_colors import model_colors
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView
from specclient.serving.dashboard.spans import DAYS, SPANS, day_text

__all__ = ["SECTION"]


def _values(read: LedgerData) -> SectionValues:
    report = read.reports[MONTH_BY_ROUTE]
    return {
        "days": {
            "days": [f"{date:%Y-%m-%d}" for date in SPANS["30d"].steps(read.now)],
            "total": f"{report.total.cost:f}",
            "total_text": cost_of(report.total) if report.total.calls else "$0",
            "lines": [
                {
                    "day": line.group[0],
                    "model": line.group[1],
                    "cost": f"{line.cost:f}",
                    "text": cost_of(line),
                    "calls": line.calls,
                }
                for line in report.lines
            ],
        }
    }


def _view(values: SectionValues, read: LedgerData) -> SectionView:
    found, colors = values["days"], model_colors(read)
    drawn = (
        chart(_chart(read.reports[MONTH_BY_ROUTE], colors, SPANS["30d"].steps(read.now), found["total_text"]))
        if colors
        else nothing("No call of the last 30 days has a known cost above zero.")
    )
    return SectionView(
        [data(found["total"], found["total_text"], "days-total"), " in the last 30 days; days are in UTC"],
        [
            drawn,
            details(
                "days-table",
                element("summary", {}, "The same as a table"),
                element("div", {"class": "scroll", "id": "days-table"}, _table(found["lines"])),
            ),
        ],
    )


def _table(lines: Sequence[Mapping[str, Any]]) -> PageElement:
    rows = [
        element(
            "tr",
            {},
            cell(line["day"], ""),
            cell(line["model"], "name"),
            cell(f"{line['calls']:,}"),
            cell(data(line["cost"], line["text"])),
        )
        for line in reversed(lines)
    ]
    heads = [Column("Day"), Column("Model"), number_column("Calls"), number_column("Cost")]
    return table("Cost by day and model", heads, rows)


def _chart(report: CostReport, colors: Mapping[str, str], dates: Sequence[datetime], total: str) -> str:
    lines = {(line.group[0], line.group[1]): line for line in report.lines if line.cost_nano}
    names = [f"{date:%Y-%m-%d}" for date in dates]
    tips = [
        "\n".join(
            [
                day_text(date),
                *(f"{model}: {cost_of(line)}" for (day, model), line in lines.items() if day == name),
            ]
        )
        for date, name in zip(dates, names, strict=True)
    ]
    series = [
        Series(
            model,
            color,
            [lines[name, model].cost_nano / 1e9 if (name, model) in lines else 0.0 for name in names],
        )
        for model, color in colors.items()
    ]
    entries = [(color, model) for model, color in colors.items() if color != OTHER]
    rest = len(colors) - len(entries)
    if rest:
        entries.append((OTHER, f"{rest} others" if rest > 1 else "1 other"))
    drawn = columns(
        [day_text(date) for date in dates],
        series,
        tips,
        height=220,
        format_value=format_axis_dollars,
        title=f"Cost by day, last {DAYS} days: {total}",
    )
    return drawn + legend(entries)


SECTION = LedgerSection(
    id="days", title="Cost by day", width=2, queries=(MONTH_BY_ROUTE,), values=_values, view=_view
)
