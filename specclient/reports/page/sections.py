"""The chart sections of the HTML report, each with a table of the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape

from specclient.ledger.figures import CallTotals
from specclient.reports.page.charts import (
    COLORS,
    OTHER,
    Bar,
    PercentileRange,
    Series,
    bars,
    columns,
    legend,
    ranges,
)
from specclient.reports.page.tables import folded, row, table
from specclient.reports.report import CostReport
from specclient.reports.text import UNKNOWN, cost_of, format_dollars, format_percent, format_seconds

__all__ = ["acceptance", "by_model", "format_axis_dollars", "latencies", "over_time"]

#: Maximum number of bars in a chart; the table below it has all of them.
_MAX_BARS = 10
#: Time spans up to which columns are hours, and days; longer spans have months.
_HOURLY, _DAILY = timedelta(hours=72), timedelta(days=120)


def over_time(hours: CostReport, models: CostReport) -> str:
    """Return the section with the cost over time, by model.

    Args:
        hours: a report by ``hour`` and ``model``.
        models: a report by ``model``, the highest cost first.
    """
    steps, unit, length = _steps([line.group[0] for line in hours.lines])
    priced = [line.group[0] for line in models.lines if line.cost_nano]
    named = priced[: len(COLORS)]
    series_of = {name: i for i, name in enumerate(named)}
    sums = [_TimeStep() for _ in steps]
    step_number = {step: i for i, step in enumerate(steps)}
    for line in hours.lines:
        sums[step_number[line.group[0][:length]]].add(series_of.get(line.group[1], len(named)), line)
    rest = len(priced) - len(named)
    names = [*named, *([f"{rest} others" if rest > 1 else "1 other"] if rest > 0 else [])]
    series = [
        Series(name, color, [step.cost_nano.get(i, 0) / 1e9 for step in sums])
        for i, (name, color) in enumerate(zip(names, (*COLORS, OTHER), strict=False))
    ]
    if hours.total.cost_nano:
        chart = columns(
            [_short(step, unit) for step in steps],
            series,
            [_tip(label, step, names) for label, step in zip(steps, sums, strict=True)],
            height=260,
            format_value=format_axis_dollars,
            title=f"Cost by {unit}, {steps[0]} to {steps[-1]}: {cost_of(hours.total)}",
        ) + legend([(one.color, one.name) for one in series])
    else:
        chart = '<p class="empty">No call has a known cost above zero.</p>'
    rows = [
        row([label, step.cost, *step.by_series(len(names)), step.unpriced_text], cost=step.exact, at=1)
        for label, step in zip(steps, sums, strict=True)
        if step.calls
    ]
    details = folded("The same as a table", table([unit, "cost", *names, "unpriced"], rows))
    return _figure("over-time", f"Cost by {unit}", "Times are UTC.", chart + details)


@dataclass(slots=True)
class _TimeStep:
    """Sums of the calls that started in one step of time.

    Attributes:
        cost_nano: cost in nano-dollars, by the number of the series.
        calls: number of calls.
        unpriced: number of calls without a known price.
        estimated: whether a cost is an estimate.
    """

    cost_nano: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    unpriced: int = 0
    estimated: bool = False

    def add(self, series: int, line: CallTotals) -> None:
        self.cost_nano[series] = self.cost_nano.get(series, 0) + line.cost_nano
        self.calls += line.calls
        self.unpriced += line.unpriced
        self.estimated |= line.estimated

    def by_series(self, count: int) -> list[str]:
        return [_dollars(self.cost_nano.get(i, 0)) for i in range(count)]

    @property
    def exact(self) -> str:
        return f"{Decimal(sum(self.cost_nano.values())).scaleb(-9):f}"

    @property
    def cost(self) -> str:
        cost = Decimal(self.exact)
        return "unknown" if self.unpriced and not cost else format_dollars(cost, estimated=self.estimated)

    @property
    def unpriced_text(self) -> str:
        return f"{self.unpriced:,}" if self.unpriced else ""


def _tip(label: str, step: _TimeStep, names: Sequence[str]) -> str:
    parts = zip(names, step.by_series(len(names)), strict=True)
    return "\n".join([label, f"all: {step.cost}", *(f"{name}: {cost}" for name, cost in parts if cost)])


def _steps(hours: Sequence[str]) -> tuple[list[str], str, int]:
    """Return the steps of the chart, without gaps.

    Args:
        hours: the hours with calls, such as ``2026-01-31 14:00``.

    Returns:
        All steps from the first hour to the last; their unit; the length of the prefix of an hour that
        names its step.
    """
    first, last = (datetime.fromisoformat(at) for at in (min(hours), max(hours)))
    span = last - first
    if span < _HOURLY:
        count = int(span / timedelta(hours=1)) + 1
        return [f"{first + timedelta(hours=i):%Y-%m-%d %H:00}" for i in range(count)], "hour", 16
    if span < _DAILY:
        days = (last.date() - first.date()).days + 1
        return [f"{first + timedelta(days=i):%Y-%m-%d}" for i in range(days)], "day", 10
    months = (last.year - first.year) * 12 + last.month - first.month
    counted = [divmod(first.year * 12 + first.month - 1 + i, 12) for i in range(months + 1)]
    return [f"{year:04d}-{month + 1:02d}" for year, month in counted], "month", 7


def _short(step: str, unit: str) -> str:
    """Return the label below a column."""
    if unit == "month":
        return step
    return step[5:] if unit == "day" else f"{step[8:10]}. {step[11:]}"


def by_model(models: CostReport) -> str:
    """Return the section with the cost of each model.

    Args:
        models: a report by ``model``, the highest cost first.
    """
    highest = max((line.cost_nano for line in models.lines), default=0) or 1
    priced = [line.group for line in models.lines if line.cost_nano]
    colors = dict(zip(priced, COLORS, strict=False))
    shown = [
        Bar(
            line.group[0],
            line.cost_nano / highest,
            cost_of(line),
            _calls(line),
            f"{line.group[0]}\n{cost_of(line)}, {_calls(line)}",
            colors.get(line.group, OTHER),
        )
        for line in models.lines[:_MAX_BARS]
    ]
    rows = [
        row(
            [line.group[0], cost_of(line), f"{line.calls:,}", f"{line.unpriced:,}"],
            cost=f"{line.cost:f}",
            at=1,
        )
        for line in models.lines
    ]
    details = folded("The same as a table", table(["model", "cost", "calls", "unpriced"], rows))
    count = len(models.lines)
    note = f"The {_MAX_BARS} most expensive of {count:,}." if count > _MAX_BARS else ""
    return _figure("by-model", "Cost by model", note, bars(shown) + details)


def _calls(line: CallTotals) -> str:
    calls = "1 call" if line.calls == 1 else f"{line.calls:,} calls"
    return f"{calls}, {line.unpriced:,} unpriced" if line.unpriced else calls


def latencies(models: CostReport) -> str:
    """Return the section with the latency percentiles of each model, the most calls first.

    Args:
        models: a report by ``model``.
    """
    known = sorted((line for line in models.lines if line.latency_p50_s), key=lambda line: -line.calls)
    if not known:
        return _figure("latency", "Latency", "", '<p class="empty">No call succeeded.</p>')
    texts = {line.group: _percentiles(line, rounded=models.rounded) for line in known}
    shown = [
        PercentileRange(
            line.group[0],
            line.latency_p50_s or 0.0,
            line.latency_p95_s or 0.0,
            line.latency_p99_s or 0.0,
            f"p50 {texts[line.group][0]} · p95 {texts[line.group][1]}",
            f"{line.group[0]}\np50 {texts[line.group][0]}, p95 {texts[line.group][1]}, "
            f"p99 {texts[line.group][2]}",
        )
        for line in known[:_MAX_BARS]
    ]
    rows = [row([line.group[0], f"{line.calls:,}", *texts[line.group]]) for line in known]
    details = folded("The same as a table", table(["model", "calls", "p50", "p95", "p99"], rows))
    note = "Mark: median. Bar: up to the 95th percentile; thin: up to the 99th. Logarithmic scale."
    return _figure("latency", "Latency by model", note, ranges(shown, format_seconds) + details)


def _percentiles(line: CallTotals, *, rounded: bool) -> list[str]:
    values = (line.latency_p50_s, line.latency_p95_s, line.latency_p99_s)
    return [UNKNOWN if value is None else format_seconds(value, rounded=rounded) for value in values]


def acceptance(pairs: CostReport) -> str:
    """Return the section with the acceptance rates of drafted and of predicted tokens.

    Args:
        pairs: a report by ``pair`` and ``route``.

    Returns:
        HTML; empty if no token was drafted or predicted.
    """
    shown, rows = [], []
    for line in pairs.lines:
        name = line.group[0] or line.group[1]
        predicted = line.predicted_accepted + line.predicted_rejected
        sources = [
            ("draft", line.acceptance_rate, line.accepted or 0, line.drafted or 0, line.mean_accepted_length),
            ("prediction", line.predicted_accepted / predicted if predicted else None,
             line.predicted_accepted, predicted, None),
        ]  # fmt: skip
        for source, rate, accepted, proposed, mean in sources:
            if rate is None:
                continue
            detail = source if mean is None else f"{source}, {mean:.2f} tokens a pass"
            tip = f"{name}\n{accepted:,} of {proposed:,} tokens accepted ({detail})"
            color = COLORS[2] if source == "draft" else COLORS[4]
            shown.append(Bar(name, rate, format_percent(rate), detail, tip, color))
            per_pass = UNKNOWN if mean is None else f"{mean:.2f}"
            texts = [name, source, f"{proposed:,}", f"{accepted:,}", format_percent(rate), per_pass]
            rows.append(row(texts, left=2))
    if not shown:
        return ""
    titles = ["pair", "source", "proposed", "accepted", "rate", "tokens/pass"]
    colors = legend([(COLORS[2], "tokens of draft models"), (COLORS[4], "tokens of callers' predictions")])
    details = folded("The same as a table", table(titles, rows, left=2))
    note = "Share of proposed tokens that the target model accepted."
    return _figure("acceptance", "Acceptance by pair", note, bars(shown[:_MAX_BARS]) + colors + details)


def _figure(name: str, title: str, note: str, content: str) -> str:
    described = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<figure id="{name}" aria-labelledby="{name}-title"><figcaption><h2 id="{name}-title">'
        f"{escape(title)}</h2>{described}</figcaption>{content}</figure>"
    )


def _dollars(nano: int) -> str:
    return format_dollars(Decimal(nano).scaleb(-9)) if nano else ""


def format_axis_dollars(dollars: float) -> str:
    """Return a value of an axis in dollars, without trailing zeros."""
    return f"${dollars:.10f}".rstrip("0").rstrip(".") if dollars < 1000 else f"${dollars / 1000:g}k"
