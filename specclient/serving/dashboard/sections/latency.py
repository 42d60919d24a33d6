"""The section of latency percentiles: time to the first token, per further token, and of whole calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specclient.ledger.figures import percentile
from specclient.reports.page.charts import PercentileRange, ranges
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
from specclient.serving.dashboard.ledger_data import BY_ROUTE, LedgerData
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView
from specclient.serving.dashboard.totals import time_text

__all__ = ["SECTION"]


def _values(read: LedgerData) -> SectionValues:
    """Return percentiles: whole calls from the report, TTFT and TPOT from the latest calls."""
    report, first = read.reports[BY_ROUTE], read.first_token_s
    each = sorted(
        (row.latency_s - row.ttft_s) / (row.completion_tokens - 1)
        for row in read.latest
        if row.status == "ok"
        and row.ttft_s is not None
        and row.completion_tokens is not None
        and row.completion_tokens > 1
    )
    total = report.total
    calls = (total.latency_p50_s, total.latency_p95_s, total.latency_p99_s)
    return {
        "latency": [
            _percentiles("ttft", "First token", "TTFT of streamed calls", len(first), _quantiles(first)),
            _percentiles("tpot", "Further tokens", "TPOT of streamed calls", len(each), _quantiles(each)),
            _percentiles(
                "total", "Whole response", "successful calls", total.calls - total.errors, calls,
                rounded=report.rounded,
            ),
        ]
    }  # fmt: skip


def _quantiles(ordered: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(percentile(ordered, part) for part in (0.5, 0.95, 0.99))


def _percentiles(
    name: str,
    title: str,
    description: str,
    calls: int,
    values: Sequence[float | None],
    *,
    rounded: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "description": description,
        "calls": calls,
        "values": list(values),
        "texts": [time_text(value, rounded=rounded) for value in values],
    }


def _view(values: SectionValues, _: LedgerData) -> SectionView:
    lines = values["latency"]
    drawn = _chart(lines)
    if not drawn:
        return SectionView([], [nothing("No call succeeded.")])
    heads = [Column(""), number_column("p50"), number_column("p95"), number_column("p99")]
    rows = [_row(line) for line in lines if line["values"][0] is not None]
    return SectionView(
        ["Mark: median. Bar: to p95; thin: to p99. Logarithmic scale."],
        [chart(drawn), table("Latency percentiles", heads, rows)],
    )


def _row(line: Mapping[str, Any]) -> PageElement:
    head = element("th", {"scope": "row", "title": line["description"]}, line["title"])
    pairs = zip(line["values"], line["texts"], strict=True)
    return element("tr", {"data-name": line["name"]}, head, *(cell(data(*pair)) for pair in pairs))


def _chart(lines: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for line in lines:
        middle, high, top = line["values"]
        if middle:
            p50, p95, p99 = line["texts"]
            tip = f"{line['title']} ({line['description']})\np50 {p50}, p95 {p95}, p99 {p99}"
            items.append(PercentileRange(line["title"], middle, high, top, p50, tip))
    return ranges(items, time_text) if items else ""


SECTION = LedgerSection(
    id="latency", title="Latency", width=1, queries=(BY_ROUTE,), values=_values, view=_view
)
