"""Turn reports into the charts of a page, each with a table of the same figures beneath it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from html import escape

from specclient.reports.lines import ReportLine
from specclient.reports.page.charts import Bar, PercentileRange, Series, bars, columns, legend, ranges
from specclient.reports.page.tables import folded, row, table
from specclient.reports.report import CostReport
from specclient.reports.text import UNKNOWN, cost_of, format_dollars, format_percent, format_seconds

__all__ = ["acceptance", "by_model", "latencies", "over_time"]

#: Models with a colour of their own; the others share one.
_COLOURS = 6
#: Bars that a chart shows; its table has them all.
_MOST_BARS = 10
#: Hours, and days, up to which they are the steps of time.
_HOURS, _DAYS = 72, 120


def over_time(hours: CostReport, models: CostReport) -> str:
    """Draw what calls cost over time, by model.

    Args:
        hours: by ``hour`` and ``model``; ``models``: by ``model``.
    """
    steps, unit, length = _steps([line.group[0] for line in hours.lines])
    named = [line.group[0] for line in models.lines if line.cost_nano][:_COLOURS]
    rest = len([line for line in models.lines if line.cost_nano]) - len(named)
    looks = {name: (i, f"k{i}") for i, name in enumerate(named)}
    spent = [_TimeStep() for _ in steps]
    place = {step: i for i, step in enumerate(steps)}
    for line in hours.lines:
        step = spent[place[line.group[0][:length]]]
        step.add(looks.get(line.group[1], (len(named), ""))[0], line)
    names = [*named, *([f"{rest} others" if rest > 1 else "1 other"] if rest > 0 else [])]
    total = cost_of(hours.total)
    title = f"Cost by {unit}, {steps[0]} to {steps[-1]}: {total}"
    series = [
        Series(
            name,
            f"k{i}" if i < len(named) else "rest",
            [step.nano.get(i, 0) / 1e9 for step in spent],
            [
                f"{label}\n{name}: {_dollars(step.nano.get(i, 0))}\nall: {step.cost}"
                for label, step in zip(steps, spent, strict=True)
            ],
        )
        for i, name in enumerate(names)
    ]
    labels = [_short(step, unit) for step in steps]
    drawn = "".join(
        columns(labels, series, size=size, form=_axis, title=title, look=look)
        for size, look in (((1060, 260), "wide"), ((350, 220), "narrow"))
    )
    rows = [
        row([label, step.cost, *step.by_series(len(names)), step.told], cost=step.exact, at=1)
        for label, step in zip(steps, spent, strict=True)
        if step.calls
    ]
    under = legend([(each.look, each.name) for each in series])
    if not hours.total.cost_nano:
        drawn, under = '<p class="empty">No call has a known cost above zero.</p>', ""
    beneath = folded("The same as a table", table([unit, "cost", *names, "unpriced"], rows))
    return _figure("over-time", f"Cost by {unit}", "Times are UTC.", drawn + under + beneath)


@dataclass(slots=True)
class _TimeStep:
    """What the calls of one step of time cost, by the number of their series."""

    nano: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    unpriced: int = 0
    estimated: bool = False

    def add(self, series: int, line: ReportLine) -> None:
        self.nano[series] = self.nano.get(series, 0) + line.cost_nano
        self.calls += line.calls
        self.unpriced += line.unpriced
        self.estimated |= line.estimated

    def by_series(self, count: int) -> list[str]:
        return [_dollars(self.nano.get(i, 0)) for i in range(count)]

    @property
    def exact(self) -> str:
        return f"{Decimal(sum(self.nano.values())).scaleb(-9):f}"

    @property
    def cost(self) -> str:
        spent = Decimal(self.exact)
        return "unknown" if self.unpriced and not spent else format_dollars(spent, estimated=self.estimated)

    @property
    def told(self) -> str:
        return f"{self.unpriced:,}" if self.unpriced else ""


def _steps(hours: Sequence[str]) -> tuple[list[str], str, int]:
    """Return every step from the first hour to the last, what it is, and how much of an hour's text it is."""
    first, last = (datetime.fromisoformat(at) for at in (min(hours), max(hours)))
    span = last - first
    if span < timedelta(hours=_HOURS):
        count = int(span / timedelta(hours=1)) + 1
        return [f"{first + timedelta(hours=i):%Y-%m-%d %H:00}" for i in range(count)], "hour", 16
    if span < timedelta(days=_DAYS):
        days = (last.date() - first.date()).days + 1
        return [f"{first + timedelta(days=i):%Y-%m-%d}" for i in range(days)], "day", 10
    months = (last.year - first.year) * 12 + last.month - first.month
    counted = [divmod(first.year * 12 + first.month - 1 + i, 12) for i in range(months + 1)]
    return [f"{year:04d}-{month + 1:02d}" for year, month in counted], "month", 7


def _short(step: str, unit: str) -> str:
    """Return what fits beneath a column."""
    if unit == "month":
        return step
    return step[5:] if unit == "day" else f"{step[8:10]}. {step[11:]}"


def by_model(models: CostReport) -> str:
    """Draw what the calls of each model cost."""
    dearest = max((line.cost_nano for line in models.lines), default=0) or 1
    colours = {line.group: i for i, line in enumerate(each for each in models.lines if each.cost_nano)}
    shown = [
        Bar(
            line.group[0],
            line.cost_nano / dearest,
            cost_of(line),
            _calls(line),
            f"{line.group[0]}\n{cost_of(line)}, {_calls(line)}",
            f"k{at}" if (at := colours.get(line.group, _COLOURS)) < _COLOURS else "rest",
        )
        for line in models.lines[:_MOST_BARS]
    ]
    rows = [
        row(
            [line.group[0], cost_of(line), f"{line.calls:,}", f"{line.unpriced:,}"],
            cost=f"{line.cost:f}",
            at=1,
        )
        for line in models.lines
    ]
    beneath = folded("The same as a table", table(["model", "cost", "calls", "unpriced"], rows))
    return _figure("by-model", "Cost by model", _cut(models.lines, "dearest"), bars(shown) + beneath)


def _calls(line: ReportLine) -> str:
    calls = "1 call" if line.calls == 1 else f"{line.calls:,} calls"
    return f"{calls}, {line.unpriced:,} unpriced" if line.unpriced else calls


def latencies(models: CostReport) -> str:
    """Draw within how many seconds calls ended."""
    known = sorted((line for line in models.lines if line.latency_p50_s), key=lambda line: -line.calls)
    if not known:
        return _figure("latency", "Latency", "", '<p class="empty">No call succeeded.</p>')
    figures = {line.group: _percentiles(line, rounded=models.rounded) for line in known}
    shown = [
        PercentileRange(
            line.group[0],
            line.latency_p50_s or 0.0,
            line.latency_p95_s or 0.0,
            line.latency_p99_s or 0.0,
            f"p50 {figures[line.group][0]} · p95 {figures[line.group][1]}",
            f"{line.group[0]}\np50 {figures[line.group][0]}, p95 {figures[line.group][1]}, "
            f"p99 {figures[line.group][2]}",
        )
        for line in known[:_MOST_BARS]
    ]
    rows = [row([line.group[0], f"{line.calls:,}", *figures[line.group]]) for line in known]
    beneath = folded("The same as a table", table(["model", "calls", "p50", "p95", "p99"], rows))
    said = "Mark: median. Bar: up to the 95th percentile; thin: up to the 99th. Logarithmic."
    return _figure("latency", "Latency by model", said, ranges(shown, format_seconds) + beneath)


def _percentiles(line: ReportLine, *, rounded: bool) -> list[str]:
    values = (line.latency_p50_s, line.latency_p95_s, line.latency_p99_s)
    return [UNKNOWN if value is None else format_seconds(value, rounded=rounded) for value in values]


def acceptance(pairs: CostReport) -> str:
    """Draw the share of drafted tokens that targets kept, and of predicted ones; nothing without any.

    Args:
        pairs: by ``pair`` and ``route``.
    """
    shown, rows = [], []
    for line in pairs.lines:
        name = line.group[0] or line.group[1]
        predicted = line.predicted_accepted + line.predicted_rejected
        found = [
            ("draft", line.acceptance_rate, line.accepted or 0, line.drafted or 0, line.mean_accepted_length),
            ("prediction", line.predicted_accepted / predicted if predicted else None,
             line.predicted_accepted, predicted, None),
        ]  # fmt: skip
        for what, rate, kept, of, mean in found:
            if rate is None:
                continue
            beside = what if mean is None else f"{what}, {mean:.2f} tokens a pass"
            told = f"{name}\n{kept:,} of {of:,} tokens kept ({beside})"
            look = "k2" if what == "draft" else "k4"
            shown.append(Bar(name, rate, format_percent(rate), beside, told, look))
            passes = UNKNOWN if mean is None else f"{mean:.2f}"
            rows.append(row([name, what, f"{of:,}", f"{kept:,}", format_percent(rate), passes], left=2))
    if not shown:
        return ""
    titles = ["pair", "of", "tokens", "kept", "accepted", "tokens/pass"]
    under = legend([("k2", "tokens of draft models"), ("k4", "tokens of callers' predictions")])
    beneath = folded("The same as a table", table(titles, rows, left=2))
    said = "The share of proposed tokens that the target kept."
    return _figure("acceptance", "Acceptance by pair", said, bars(shown[:_MOST_BARS]) + under + beneath)


def _figure(name: str, title: str, said: str, content: str) -> str:
    note = f"<p>{escape(said)}</p>" if said else ""
    return (
        f'<figure id="{name}" aria-labelledby="{name}-title"><figcaption><h2 id="{name}-title">'
        f"{escape(title)}</h2>{note}</figcaption>{content}</figure>"
    )


def _cut(lines: Sequence[ReportLine], kind: str) -> str:
    return f"The {_MOST_BARS} {kind} of {len(lines):,}." if len(lines) > _MOST_BARS else ""


def _dollars(nano: int) -> str:
    return format_dollars(Decimal(nano).scaleb(-9)) if nano else ""


def _axis(dollars: float) -> str:
    return f"${dollars:.10f}".rstrip("0").rstrip(".") if dollars < 1000 else f"${dollars / 1000:g}k"
