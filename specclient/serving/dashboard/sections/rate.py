"""The section of generated tokens per second over time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from specclient.ledger.row import LedgerRow
from specclient.reports.page.charts import area
from specclient.serving.dashboard.elements import chart, nothing
from specclient.serving.dashboard.ledger_data import STEP, LedgerData, ReportQuery
from specclient.serving.dashboard.sections.section import LedgerSection, SectionValues, SectionView
from specclient.serving.dashboard.spans import DAY, MINUTE, FigureSpan, day_text
from specclient.serving.dashboard.totals import digits_text

__all__ = ["SECTION"]

_BY_STEP = ReportQuery((STEP,))
#: Format of a step's start in reports, by the name of the group.
_STEP_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", None: "%Y-%m-%d %H:%M"}


def _values(read: LedgerData) -> SectionValues:
    """Return generated tokens by step."""
    span, steps = read.span, read.span.steps(read.now)
    tokens = (
        _tokens_by_minute(read.latest)
        if span.group is None
        else {line.group[0]: line.tokens_out for line in read.reports[_BY_STEP].lines}
    )
    sums = [tokens.get(f"{step:{_STEP_FORMATS[span.group]}}", 0) for step in steps]
    return {"rate": {"begins": steps[0].isoformat(), "tokens": sums}}


def _tokens_by_minute(rows: Iterable[LedgerRow]) -> dict[str, int]:
    """Return generated tokens by the minute in which the call started."""
    sums: dict[str, int] = {}
    for row in rows:
        minute = f"{row.started_at.astimezone(UTC):{_STEP_FORMATS[None]}}"
        sums[minute] = sums.get(minute, 0) + (row.completion_tokens or 0)
    return sums


def _view(values: SectionValues, read: LedgerData) -> SectionView:
    span, sums = read.span, values["rate"]["tokens"]
    total = sum(sums)
    subtitle = f"{total:,} {'token' if total == 1 else 'tokens'} generated, {span.title}; times are UTC"
    drawn = chart(_chart(sums, read)) if total else nothing(f"No tokens were generated in the {span.title}.")
    return SectionView([subtitle], [drawn])


def _chart(sums: list[int], read: LedgerData) -> str:
    """Return the chart; the last step lasts until now, at least a minute."""
    span, steps = read.span, read.span.steps(read.now)
    last = max(read.now - steps[-1], MINUTE)
    seconds = [span.step.total_seconds()] * (span.count - 1) + [last.total_seconds()]
    rates = [count / duration for count, duration in zip(sums, seconds, strict=True)]
    return area(
        [_step_label(span, step) for step in steps],
        rates,
        [
            f"{day_text(step)}{'' if span.step >= DAY else f', {step:%H:%M}'} UTC\n"
            f"{digits_text(rate)} tokens per second\n{count:,} tokens"
            for step, rate, count in zip(steps, rates, sums, strict=True)
        ],
        height=300,
        format_value=digits_text,
        title=f"Generated tokens per second, {span.title}: at most {digits_text(max(rates))}",
    )


def _step_label(span: FigureSpan, step: datetime) -> str:
    """Return the label of a step: its day or time; in a chart of several days of hours, only the days."""
    if span.step >= DAY:
        return day_text(step)
    if span.step * span.count > timedelta(days=1):
        return "" if step.hour else day_text(step)
    return f"{step:%H:%M}"


SECTION = LedgerSection(
    id="rate", title="Tokens per second", width=2, queries=(_BY_STEP,), values=_values, view=_view
)
