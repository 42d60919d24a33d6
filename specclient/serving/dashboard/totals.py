"""Sums of calls as values for JSON and as texts, as several parts of the dashboard show them."""

from __future__ import annotations

from typing import Any

from specclient.ledger.figures import CallTotals
from specclient.reports.report import CostReport
from specclient.reports.text import UNKNOWN, cost_of, format_percent, format_seconds, notes

__all__ = ["digits_text", "line_values", "time_text", "total_values"]


def total_values(report: CostReport) -> dict[str, Any]:
    """Return the sums of all calls of a report, with notes on them."""
    total = report.total
    return {
        **line_values(total, "total", rounded=report.rounded),
        "notes": notes(report),
        "predicted_accepted": total.predicted_accepted,
        "predicted": total.predicted_accepted + total.predicted_rejected,
    }


def line_values(line: CallTotals, name: str, *, rounded: bool) -> dict[str, Any]:
    """Return the sums of a line of a report; ``rounded`` is the report's."""
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
        "p50_text": time_text(line.latency_p50_s, rounded=rounded),
        "p95_text": time_text(line.latency_p95_s, rounded=rounded),
    }


def time_text(value: float | None, *, rounded: bool = False) -> str:
    """Return seconds as text, in ms below one second; ``rounded`` marks them with an ``≈``."""
    if value is None or value >= 1:
        return UNKNOWN if value is None else format_seconds(value, rounded=rounded)
    return f"{format_seconds(1000 * value, rounded=rounded).removesuffix(' s')} ms"


def digits_text(value: float) -> str:
    """Return a number to three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
