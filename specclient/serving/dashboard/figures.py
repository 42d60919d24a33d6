"""Turn the calls of a span of time into the figures of the dashboard, exact and as text.

Sums are the ledger's own reports. What the reports do not have (first tokens, time per token, the choices of
routes) is read of the latest calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Protocol

from specclient.ledger.row import LedgerRow
from specclient.reports.lines import ReportLine, percentile
from specclient.reports.reader import CallFilter, LedgerReader, read_reports
from specclient.reports.report import CostReport
from specclient.reports.text import UNKNOWN, cost_of, format_percent, format_seconds, notes

__all__ = ["DAYS", "LATEST", "SPANS", "CallSource", "figures"]

#: Calls that are looked at one by one.
LATEST = 5000
#: Choices of a route that are shown.
CHOICES = 12
#: Days of the chart of cost, today included.
DAYS = 30

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class FigureSpan:
    """A span of time up to now, of whole steps.

    Attributes:
        step: of its chart; ``count`` of them, the last one not over yet.
        group: what reports call such a step; None where they have none.
    """

    step: timedelta
    count: int
    group: str | None

    def begins(self, now: datetime) -> datetime:
        """Return when it began."""
        return _floor(now, self.step) - (self.count - 1) * self.step


#: What the page offers, by name.
SPANS: Mapping[str, FigureSpan] = MappingProxyType(
    {
        "1h": FigureSpan(_MINUTE, 60, None),
        "24h": FigureSpan(_HOUR, 24, "hour"),
        "7d": FigureSpan(_HOUR, 168, "hour"),
        "30d": FigureSpan(_DAY, 30, "day"),
    }
)


class CallSource(LedgerReader, Protocol):
    """What figures are read of: a ledger."""

    def rows(
        self, since: datetime | None = None, until: datetime | None = None, *, limit: int | None = None
    ) -> list[LedgerRow]:
        """Return the newest so many calls of a span of time, oldest first."""
        ...


def figures(source: CallSource, name: str, now: datetime) -> dict[str, Any]:
    """Return what the dashboard shows of a span, as values that JSON can hold.

    Args:
        name: of :data:`SPANS`.
        now: UTC.

    Raises:
        LedgerError: the ledger cannot be read; names it and the way out.
    """
    span = SPANS[name]
    since = span.begins(now)
    groupings: list[Sequence[str]] = [("route",), ("pair", "route"), ("model", "route")]
    if span.group is not None:
        groupings.append((span.group,))
    found = read_reports(source, groupings, CallFilter(since=since))
    routes, pairs, asked = found.reports[:3]
    days = read_reports(source, [("day", "route")], CallFilter(since=SPANS["30d"].begins(now))).reports[0]
    latest = source.rows(since, limit=LATEST)
    steps = (
        _by_minute(latest)
        if span.group is None
        else {line.group[0]: line.tokens_out for line in found.reports[3].lines}
    )
    return {
        "at": now.isoformat(),
        "since": since.isoformat(),
        "span": name,
        "total": _total(routes),
        "models": [_line(line, line.group[0], rounded=routes.rounded) for line in routes.lines],
        "pairs": list(_pairs(pairs)),
        "days": _days(days, now),
        "rate": _rate(span, steps, now),
        "now_tokens_per_s": _per_s_now(latest, now),
        "latency": _latency(routes, latest),
        "routes": [
            {"asked": line.group[0], "chosen": line.group[1], "calls": line.calls, "errors": line.errors}
            for line in sorted(asked.lines, key=lambda line: -line.calls)
        ],
        "choices": [_choice(row) for row in reversed(latest) if row.purpose == "call"][:CHOICES],
    }


def _total(report: CostReport) -> dict[str, Any]:
    total = report.total
    return {
        **_line(total, "total", rounded=report.rounded),
        "notes": notes(report),
        "predicted_accepted": total.predicted_accepted,
        "predicted": total.predicted_accepted + total.predicted_rejected,
    }


def _line(line: ReportLine, name: str, *, rounded: bool) -> dict[str, Any]:
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


def _pairs(report: CostReport) -> Iterable[dict[str, Any]]:
    """Yield what was drafted and kept by pair of models, and what of predictions, the most drafted first."""
    for line in sorted(report.lines, key=lambda line: -(line.drafted or 0)):
        name = line.group[0] or line.group[1]
        predicted = line.predicted_accepted + line.predicted_rejected
        if line.drafted:
            length = line.mean_accepted_length
            yield _pair(name, "draft", line.accepted or 0, line.drafted, length)
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


def _days(report: CostReport, now: datetime) -> dict[str, Any]:
    first = SPANS["30d"].begins(now)
    return {
        "days": [f"{first + k * _DAY:%Y-%m-%d}" for k in range(DAYS)],
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


def _rate(span: FigureSpan, tokens: Mapping[str, int], now: datetime) -> dict[str, Any]:
    """Return generated tokens by step; the last one is taken to have lasted for ``last_s`` seconds."""
    begins = span.begins(now)
    steps = [begins + k * span.step for k in range(span.count)]
    form = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", None: "%Y-%m-%d %H:%M"}[span.group]
    return {
        "step_s": span.step.total_seconds(),
        "last_s": max(now - steps[-1], _MINUTE).total_seconds(),
        "begins": begins.isoformat(),
        "tokens": [tokens.get(f"{step:{form}}", 0) for step in steps],
    }


def _by_minute(rows: Iterable[LedgerRow]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        minute = f"{row.started_at.astimezone(UTC):%Y-%m-%d %H:%M}"
        found[minute] = found.get(minute, 0) + (row.completion_tokens or 0)
    return found


def _per_s_now(rows: Iterable[LedgerRow], now: datetime) -> float:
    """Return the tokens of the calls that ended within the last minute, by the second."""
    ended = (row for row in rows if now - row.started_at - timedelta(seconds=row.latency_s) <= _MINUTE)
    return sum(row.completion_tokens or 0 for row in ended) / 60


def _latency(report: CostReport, rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Return percentiles: of whole calls by the report, of first and further tokens by the latest calls."""
    done = [row for row in rows if row.status == "ok"]
    first = sorted(row.ttft_s for row in done if row.ttft_s is not None)
    each = sorted(
        (row.latency_s - row.ttft_s) / (row.completion_tokens - 1)
        for row in done
        if row.ttft_s is not None and row.completion_tokens is not None and row.completion_tokens > 1
    )
    total = report.total
    whole = (total.latency_p50_s, total.latency_p95_s, total.latency_p99_s)
    return [
        _percentiles("ttft", "First token", "TTFT, of streamed calls", len(first), _of(first)),
        _percentiles("tpot", "Each further token", "TPOT, of streamed calls", len(each), _of(each)),
        _percentiles(
            "total", "Whole answer", "of calls that succeeded", total.calls - total.errors, whole,
            rounded=report.rounded,
        ),
    ]  # fmt: skip


def _of(ordered: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(percentile(ordered, part) for part in (0.5, 0.95, 0.99))


def _percentiles(
    name: str,
    title: str,
    what: str,
    calls: int,
    values: Sequence[float | None],
    *,
    rounded: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "what": what,
        "calls": calls,
        "values": list(values),
        "texts": [_time(value, rounded=rounded) for value in values],
    }


def _choice(row: LedgerRow) -> dict[str, Any]:
    decision = row.decision
    return {
        "id": row.id,
        "at": row.started_at.isoformat(),
        "asked": row.model,
        "chosen": row.route,
        "reason": decision.get("reason") or "named by the caller",
        "status": row.status,
        "error": row.error,
        "tokens": row.completion_tokens,
        "cost_text": UNKNOWN if row.cost is None else _money(row),
        "latency_text": _time(row.latency_s),
        "candidates": [
            {name: candidate.get(name) for name in ("route", "verdict", "reason")}
            for candidate in decision.get("candidates") or ()
        ],
    }


def _money(row: LedgerRow) -> str:
    line = ReportLine(group=(), calls=1, cost_nano=row.cost_nano or 0, estimated=row.cost_estimated)
    return cost_of(line)


def _time(value: float | None, *, rounded: bool = False) -> str:
    if value is None or value >= 1:
        return UNKNOWN if value is None else format_seconds(value, rounded=rounded)
    return f"{format_seconds(1000 * value, rounded=rounded).removesuffix(' s')} ms"


def _floor(at: datetime, step: timedelta) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (at - midnight) // step * step
