"""The figures of the dashboard for a time span: exact values, their texts and their charts.

Sums come from the ledger's reports. Figures that reports do not have (time to the first token, time per
output token, routing decisions) come from the latest calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from specclient.ledger.figures import CallTotals, percentile
from specclient.ledger.row import LedgerRow
from specclient.reports.page.charts import COLORS, OTHER, Bar, PercentileRange, bars, ranges, track
from specclient.reports.reader import CallFilter, LedgerReader, read_reports
from specclient.reports.report import CostReport
from specclient.reports.text import UNKNOWN, cost_of, format_dollars, format_percent, format_seconds, notes
from specclient.serving.dashboard.spans import MINUTE, SPANS
from specclient.serving.dashboard.timelines import cost_by_day, model_colors, token_rate, tokens_by_minute

__all__ = ["LATEST", "CallSource", "figures"]

#: Maximum number of calls that are read one by one.
LATEST = 5000
#: Number of calls and of routes that are shown.
_CHOICES, _ROUTES = 12, 6


class CallSource(LedgerReader, Protocol):
    """The interface of a ledger that the dashboard reads."""

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        """Return the newest ``limit`` calls that started in ``[since, until)``, oldest first."""
        ...


def figures(source: CallSource, name: str, now: datetime) -> dict[str, Any]:
    """Return the figures of a time span as values for JSON.

    A section of the page reads one or more of these keys; see ``SECTIONS`` in ``assets/sections.js``. A
    section that shows a chart gets it as markup, under ``NAME_chart`` or as ``chart`` within its figures; it
    is "" without anything to show. Tables are made by the page, from values and texts.

    Args:
        source: a ledger, or the recent calls of a server without one.
        name: a key of :data:`~specclient.serving.dashboard.spans.SPANS`.
        now: UTC.

    Raises:
        LedgerError: the ledger cannot be read; the message names it and the way out.
    """
    span = SPANS[name]
    since = span.begins(now)
    groupings: dict[str, Sequence[str]] = {
        "route": ("route",),
        "pair": ("pair", "route"),
        "request": ("model", "route"),
    }
    if span.group is not None:
        groupings["time"] = (span.group,)
    reports = dict(
        zip(
            groupings,
            read_reports(source, [*groupings.values()], CallFilter(since=since)).reports,
            strict=True,
        )
    )
    by_route, by_request = reports["route"], reports["request"]
    days = read_reports(source, [("day", "route")], CallFilter(since=SPANS["30d"].begins(now))).reports[0]
    latest = source.rows(since, limit=LATEST)
    tokens = (
        tokens_by_minute(latest)
        if span.group is None
        else {line.group[0]: line.tokens_out for line in reports["time"].lines}
    )
    colors = model_colors(days)
    latency = _latency(by_route, latest)
    routes = _routes(by_request)
    pairs = list(_pairs(reports["pair"]))
    return {
        "at": now.isoformat(),
        "since": since.isoformat(),
        "span": name,
        "span_title": span.title,
        "total": _total(by_route),
        "models": _models(by_route, colors),
        "pairs": pairs,
        "pairs_chart": _pairs_chart(pairs),
        "days": cost_by_day(days, colors, now),
        "rate": token_rate(span, tokens, now),
        "now_tokens_per_s": _current_tokens_per_s(latest, now),
        "latency": latency,
        "latency_chart": _latency_chart(latency),
        "routes": routes,
        "routes_chart": _routes_chart(routes),
        "choices": [_choice(row) for row in reversed(latest) if row.purpose == "call"][:_CHOICES],
    }


def _total(report: CostReport) -> dict[str, Any]:
    total = report.total
    return {
        **_line(total, "total", rounded=report.rounded),
        "notes": notes(report),
        "predicted_accepted": total.predicted_accepted,
        "predicted": total.predicted_accepted + total.predicted_rejected,
    }


def _models(by_route: CostReport, colors: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a line for each model that served calls, under the name of its route."""
    highest = max((line.cost_nano for line in by_route.lines), default=0) or 1
    return [
        {
            **_line(line, line.group[0], rounded=by_route.rounded),
            "bar": track(line.cost_nano / highest, colors.get(line.group[0], OTHER)),
        }
        for line in by_route.lines
    ]


def _line(line: CallTotals, name: str, *, rounded: bool) -> dict[str, Any]:
    return {
        "name": name,
        "calls": line.calls,
        "errors": line.errors,
        "tokens_in": line.tokens_in,
        "tokens_out": line.tokens_out,
        "cost": f"{line.cost:f}",
        "cost_text": cost_of(line),
        "unpriced": line.unpriced,
        "drafted": line.drafted,
        "accepted": line.accepted,
        "acceptance": line.acceptance_rate,
        "acceptance_text": UNKNOWN if line.acceptance_rate is None else format_percent(line.acceptance_rate),
        "p50_text": _time(line.latency_p50_s, rounded=rounded),
        "p95_text": _time(line.latency_p95_s, rounded=rounded),
    }


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


def _pairs_chart(pairs: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for pair in pairs:
        kind = "drafted" if pair["kind"] == "draft" else "predicted"
        tip = f"{pair['name']}\n{pair['accepted']:,} of {pair['drafted']:,} {kind} tokens accepted"
        detail = kind if pair["length_text"] is None else f"{kind}, {pair['length_text']} tokens a pass"
        color = COLORS[2] if kind == "drafted" else COLORS[4]
        items.append(Bar(pair["name"], pair["rate"], pair["rate_text"], detail, tip, color))
    return bars(items) if items else ""


def _current_tokens_per_s(rows: Sequence[LedgerRow], now: datetime) -> float:
    """Return the tokens per second of the calls that ended within the last minute."""
    ended = (row for row in rows if now - row.started_at - timedelta(seconds=row.latency_s) <= MINUTE)
    return sum(row.completion_tokens or 0 for row in ended) / 60


def _latency(report: CostReport, rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Return percentiles: whole calls from the report, TTFT and TPOT from the latest calls."""
    done = [row for row in rows if row.status == "ok"]
    first = sorted(row.ttft_s for row in done if row.ttft_s is not None)
    each = sorted(
        (row.latency_s - row.ttft_s) / (row.completion_tokens - 1)
        for row in done
        if row.ttft_s is not None and row.completion_tokens is not None and row.completion_tokens > 1
    )
    total = report.total
    calls = (total.latency_p50_s, total.latency_p95_s, total.latency_p99_s)
    return [
        _percentiles("ttft", "First token", "TTFT of streamed calls", len(first), _quantiles(first)),
        _percentiles("tpot", "Further tokens", "TPOT of streamed calls", len(each), _quantiles(each)),
        _percentiles(
            "total", "Whole response", "successful calls", total.calls - total.errors, calls,
            rounded=report.rounded,
        ),
    ]  # fmt: skip


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
        "texts": [_time(value, rounded=rounded) for value in values],
    }


def _latency_chart(latency: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for line in latency:
        middle, high, top = line["values"]
        if middle:
            p50, p95, p99 = line["texts"]
            tip = f"{line['title']} ({line['description']})\np50 {p50}, p95 {p95}, p99 {p99}"
            items.append(PercentileRange(line["title"], middle, high, top, p50, tip))
    return ranges(items, _time) if items else ""


def _routes(report: CostReport) -> list[dict[str, Any]]:
    """Return calls by requested and chosen model, the most calls first."""
    return [
        {"requested": line.group[0], "chosen": line.group[1], "calls": line.calls, "errors": line.errors}
        for line in sorted(report.lines, key=lambda line: -line.calls)
    ]


def _routes_chart(routes: Sequence[Mapping[str, Any]]) -> str:
    """Return a bar chart of the routes whose model differs from the requested one."""
    routed = [route for route in routes if route["requested"] != route["chosen"]][:_ROUTES]
    items = []
    for route in routed:
        name = f"{route['requested']} → {route['chosen']}"
        calls = "1 call" if route["calls"] == 1 else f"{route['calls']:,} calls"
        failed = f", {route['errors']:,} failed" if route["errors"] else ""
        items.append(Bar(name, route["calls"] / routed[0]["calls"], calls, "", f"{name}\n{calls}{failed}"))
    return bars(items) if items else ""


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
        "latency_text": _time(row.latency_s),
        "candidates": [
            {name: candidate.get(name) for name in ("route", "verdict", "reason")}
            for candidate in decision.get("candidates") or ()
        ],
    }


def _cost(row: LedgerRow) -> str:
    estimated = row.cost_estimated or row.usage_estimated
    return UNKNOWN if row.cost is None else format_dollars(row.cost, estimated=estimated)


def _time(value: float | None, *, rounded: bool = False) -> str:
    if value is None or value >= 1:
        return UNKNOWN if value is None else format_seconds(value, rounded=rounded)
    return f"{format_seconds(1000 * value, rounded=rounded).removesuffix(' s')} ms"
