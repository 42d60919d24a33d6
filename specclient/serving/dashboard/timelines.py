"""The dashboard's sections over time: generated tokens per second and cost per day, with their charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from specclient.ledger.row import LedgerRow
from specclient.reports.page.charts import COLORS, OTHER, Series, area, columns, legend
from specclient.reports.page.sections import format_axis_dollars
from specclient.reports.report import CostReport
from specclient.reports.text import cost_of
from specclient.serving.dashboard.spans import DAY, DAYS, MINUTE, SPANS, FigureSpan

__all__ = ["cost_by_day", "model_colors", "token_rate", "tokens_by_minute"]

#: Format of a step's start in reports, by the name of the group.
_STEP_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", None: "%Y-%m-%d %H:%M"}


def token_rate(span: FigureSpan, tokens: Mapping[str, int], now: datetime) -> dict[str, Any]:
    """Return generated tokens by step, with a chart of tokens per second.

    Args:
        span: the span of time.
        tokens: generated tokens by the step's start, formatted as in reports; absent steps have none.
        now: UTC; the last step lasts until then, at least a minute.
    """
    steps = [span.begins(now) + k * span.step for k in range(span.count)]
    last = max(now - steps[-1], MINUTE)
    sums = [tokens.get(f"{step:{_STEP_FORMATS[span.group]}}", 0) for step in steps]
    seconds = [span.step.total_seconds()] * (span.count - 1) + [last.total_seconds()]
    rates = [count / duration for count, duration in zip(sums, seconds, strict=True)]
    drawn = ""
    if any(sums):
        drawn = area(
            [_step_label(span, step) for step in steps],
            rates,
            [
                f"{_day(step)}{'' if span.step >= DAY else f', {step:%H:%M}'} UTC\n"
                f"{_digits(rate)} tokens per second\n{count:,} tokens"
                for step, rate, count in zip(steps, rates, sums, strict=True)
            ],
            height=300,
            format_value=_digits,
            title=f"Generated tokens per second, {span.title}: at most {_digits(max(rates))}",
        )
    return {"begins": steps[0].isoformat(), "tokens": sums, "chart": drawn}


def tokens_by_minute(rows: Iterable[LedgerRow]) -> dict[str, int]:
    """Return generated tokens by the minute in which the call started."""
    sums: dict[str, int] = {}
    for row in rows:
        minute = f"{row.started_at.astimezone(UTC):{_STEP_FORMATS[None]}}"
        sums[minute] = sums.get(minute, 0) + (row.completion_tokens or 0)
    return sums


def model_colors(days: CostReport) -> dict[str, str]:
    """Return the CSS class of each model with a cost, the most expensive model first.

    Args:
        days: a report by ``day`` and ``route``.
    """
    spent: dict[str, int] = {}
    for line in days.lines:
        spent[line.group[1]] = spent.get(line.group[1], 0) + line.cost_nano
    models = sorted((model for model in spent if spent[model]), key=lambda model: -spent[model])
    return {model: COLORS[i] if i < len(COLORS) else OTHER for i, model in enumerate(models)}


def cost_by_day(report: CostReport, colors: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Return the cost of each day and model, with a chart.

    Args:
        report: by ``day`` and ``route``.
        colors: the result of :func:`model_colors`.
        now: UTC.
    """
    first = SPANS["30d"].begins(now)
    dates = [first + k * DAY for k in range(DAYS)]
    total = cost_of(report.total) if report.total.calls else "$0"
    return {
        "days": [f"{date:%Y-%m-%d}" for date in dates],
        "total": f"{report.total.cost:f}",
        "total_text": total,
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
        "chart": _day_chart(report, colors, dates, total) if colors else "",
    }


def _day_chart(report: CostReport, colors: Mapping[str, str], dates: list[datetime], total: str) -> str:
    lines = {(line.group[0], line.group[1]): line for line in report.lines if line.cost_nano}
    names = [f"{date:%Y-%m-%d}" for date in dates]
    tips = [
        "\n".join(
            [
                _day(date),
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
        [_day(date) for date in dates],
        series,
        tips,
        height=220,
        format_value=format_axis_dollars,
        title=f"Cost by day, last {DAYS} days: {total}",
    )
    return drawn + legend(entries)


def _step_label(span: FigureSpan, step: datetime) -> str:
    """Return the label of a step: its day or time; in a chart of several days of hours, only the days."""
    if span.step >= DAY:
        return _day(step)
    if span.step * span.count > timedelta(days=1):
        return "" if step.hour else _day(step)
    return f"{step:%H:%M}"


def _day(date: datetime) -> str:
    return f"{date.day} {date:%b}"


def _digits(value: float) -> str:
    """Return a number to three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
