"""The section of acceptance rates by pair of models, and by prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specclient.reports.page.charts import COLORS, Bar, bars
from specclient.reports.report import CostReport
from specclient.reports.text import format_percent
from specclient.serving.dashboard.elements import chart, nothing
from specclient.serving.dashboard.ledger_data import LedgerData, ReportQuery
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView

__all__ = ["SECTION"]

_BY_PAIR = ReportQuery(("pair", "route"))


def _values(read: LedgerData) -> SectionValues:
    return {"pairs": list(_pairs(read.reports[_BY_PAIR]))}


def _pairs(report: CostReport) -> Iterator[dict[str, Any]]:
    """Yield accepted and proposed tokens by pair of models and by prediction, the most drafted first."""
    for line in sorted(report.lines, key=lambda line: -(line.drafted or 0)):
        name = line.group[0] or line.group[1]
        predicted = line.predicted_accepted + line.predicted_rejected
        if line.drafted:
            yield _pair(name, "draft", line.accepted or 0, line.drafted, line.mean_accepted_length)
        if predicted:
            yield _pair(name, "prediction", line.predicted_accepted, predicted, None)


def _pair(name: str, kind: str, accepted: int, drafted: int, length: float | None) -> dict[str, Any]:
    rate = accepted / drafted
    return {
        "name": name,
        "kind": kind,
        "accepted": accepted,
        "drafted": drafted,
        "rate": rate,
        "rate_text": format_percent(rate),
        "length_text": None if length is None else f"{length:.2f}",
    }


def _view(values: SectionValues, _: LedgerData) -> SectionView:
    missing = (
        "No tokens were drafted. Local models, and providers that verify predictions, show their acceptance "
        "rate here."
    )
    pairs = values["pairs"]
    return SectionView(
        ["Share of drafted tokens that the target model accepted."],
        [chart(_chart(pairs)) if pairs else nothing(missing)],
    )


def _chart(pairs: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for pair in pairs:
        kind = "drafted" if pair["kind"] == "draft" else "predicted"
        tip = f"{pair['name']}\n{pair['accepted']:,} of {pair['drafted']:,} {kind} tokens accepted"
        detail = kind if pair["length_text"] is None else f"{kind}, {pair['length_text']} tokens a pass"
        color = COLORS[2] if kind == "drafted" else COLORS[4]
        items.append(Bar(pair["name"], pair["rate"], pair["rate_text"], detail, tip, color))
    return bars(items)


SECTION = LedgerSection(
    id="pairs", title="Acceptance by pair", width=1, queries=(_BY_PAIR,), values=_values, view=_view
)
