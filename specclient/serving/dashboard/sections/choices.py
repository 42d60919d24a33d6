"""The section of routing decisions: the models that were chosen instead of the requested ones, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specclient.ledger.row import LedgerRow
from specclient.reports.page.charts import Bar, bars
from specclient.reports.text import UNKNOWN, format_dollars
from specclient.serving.dashboard.elements import PageElement, chart, details, element, local_time, nothing
from specclient.serving.dashboard.ledger_data import LedgerData, ReportQuery
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView
from specclient.serving.dashboard.totals import time_text

__all__ = ["SECTION"]

_BY_REQUEST = ReportQuery(("model", "route"))
#: Number of calls and of routes that are shown.
_CHOICES, _ROUTES = 12, 6


def _values(read: LedgerData) -> SectionValues:
    """Return the latest calls, and calls by requested and chosen model, the most calls first."""
    return {
        "routes": [
            {"requested": line.group[0], "chosen": line.group[1], "calls": line.calls, "errors": line.errors}
            for line in sorted(read.reports[_BY_REQUEST].lines, key=lambda line: -line.calls)
        ],
        "choices": [_choice(row) for row in reversed(read.latest) if row.purpose == "call"][:_CHOICES],
    }


def _choice(row: LedgerRow) -> dict[str, Any]:
    decision = row.decision
    return {
        "id": row.id,
        "at": row.started_at.isoformat(),
        "requested": row.model,
        "chosen": row.route,
        "reason": decision.get("reason") or "named by the caller",
        "status": row.status,
        "error": row.error,
        "tokens": row.completion_tokens,
        "cost_text": _cost(row),
        "latency_text": time_text(row.latency_s),
        "candidates": [
            {name: candidate.get(name) for name in ("route", "verdict", "reason")}
            for candidate in decision.get("candidates") or ()
        ],
    }


def _cost(row: LedgerRow) -> str:
    estimated = row.cost_estimated or row.usage_estimated
    return UNKNOWN if row.cost is None else format_dollars(row.cost, estimated=estimated)


def _view(values: SectionValues, read: LedgerData) -> SectionView:
    calls = values["choices"]
    return SectionView(
        ["Latest calls, newest first."] if calls else [],
        [
            element("div", {"class": "routes"}, chart(_chart(values["routes"]))),
            element("ol", {"class": "choices"}, *map(_item, calls))
            if calls
            else nothing(f"No calls in the {read.span.title}."),
        ],
    )


def _chart(routes: Sequence[Mapping[str, Any]]) -> str:
    """Return a bar chart of the routes whose model differs from the requested one."""
    routed = [route for route in routes if route["requested"] != route["chosen"]][:_ROUTES]
    items = []
    for route in routed:
        name = f"{route['requested']} → {route['chosen']}"
        calls = "1 call" if route["calls"] == 1 else f"{route['calls']:,} calls"
        failed = f", {route['errors']:,} failed" if route["errors"] else ""
        items.append(Bar(name, route["calls"] / routed[0]["calls"], calls, "", f"{name}\n{calls}{failed}"))
    return bars(items) if items else ""


def _item(call: Mapping[str, Any]) -> PageElement:
    """Return a call, with its candidates if there were several."""
    head = _head(call)
    candidates = [each for each in call["candidates"] if each["route"] != call["chosen"] or each["reason"]]
    content = (
        element("div", {"class": "choice"}, *head)
        if len(candidates) < 2
        else details(
            call["id"],
            element("summary", {"class": "choice"}, *head),
            element("ul", {"class": "candidates"}, *map(_candidate, candidates)),
        )
    )
    return element("li", {"data-call": call["id"]}, content)


def _head(call: Mapping[str, Any]) -> list[PageElement]:
    ok, chosen = call["status"] == "ok", element("b", {}, call["chosen"])
    requested = () if call["requested"] == call["chosen"] else (f"{call['requested']} → ",)
    figures = [text for text in (call["cost_text"], call["latency_text"]) if text != UNKNOWN]
    why = call["reason"] if ok else f"{call['status']}: {call['error'] or 'cancelled by the caller'}"
    return [
        element("span", {"class": "when"}, local_time(call["at"])),
        element("span", {"class": "route"}, *requested, chosen),
        element("span", {"class": "value"}, " · ".join(figures)),
        element("span", {"class": "soft why" if ok else "bad why"}, why),
    ]


def _candidate(candidate: Mapping[str, Any]) -> PageElement:
    verdict = candidate["verdict"] or ""
    return element(
        "li",
        {},
        element("span", {"class": "badge" if verdict == "chosen" else "badge waits"}, verdict),
        element("span", {"class": "name"}, candidate["route"] or ""),
        element("span", {"class": "soft"}, candidate["reason"] or ""),
    )


SECTION = LedgerSection(
    id="choices", title="Routing decisions", width=3, queries=(_BY_REQUEST,), values=_values, view=_view
)
