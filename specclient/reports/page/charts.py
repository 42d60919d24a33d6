"""Charts as SVG and HTML text: columns and areas over time, bars, and percentile ranges.

The HTML report and the server's dashboard both use this module, with the styles of ``charts.css`` and the
tooltips of ``tips.js``. Horizontal positions are percentages, so one drawing fits every width without scaling
its text. All text is escaped here. Each chart has an accessible name, and each of its marks a ``<title>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "COLORS",
    "OTHER",
    "Bar",
    "PercentileRange",
    "Series",
    "area",
    "bars",
    "columns",
    "legend",
    "ranges",
    "ticks",
    "track",
]

#: CSS classes of the series that have a color of their own; all other series share ``OTHER``.
COLORS = tuple(f"k{i}" for i in range(6))
OTHER = "rest"

# Vertical layout of a chart with an axis, in CSS pixels.
_TOP, _BOTTOM = 8, 24
# Width of the axis: estimated width of one character, the gap to the plot, and the minimum.
_CHARACTER, _GAP, _MIN_AXIS = 7.4, 8, 34
# Maximum number of labels under a chart on a wide screen, and on a narrow one.
_WIDE_LABELS, _NARROW_LABELS = 12, 4


@dataclass(frozen=True, slots=True)
class Series:
    """One color of a column chart.

    Attributes:
        name: the series' name in the legend.
        color: the CSS class that colors it, one of :data:`COLORS` or :data:`OTHER`.
        values: one value per column, 0 or more.
    """

    name: str
    color: str
    values: Sequence[float]


def ticks(top: float, steps: int = 5) -> list[float]:
    """Return round axis values from 0 to the first one that is not below ``top``.

    Args:
        top: the highest value of the chart.
        steps: the maximum number of intervals.
    """
    if top <= 0:
        return [0.0, 1.0]
    rough = top / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [k * step for k in range(math.ceil(top / step - 1e-9) + 1)]


def columns(
    labels: Sequence[str],
    series: Sequence[Series],
    tips: Sequence[str],
    *,
    height: int,
    format_value: Callable[[float], str],
    title: str,
) -> str:
    """Return a stacked column chart over time.

    Args:
        labels: one label per column; an empty label is not drawn.
        series: the parts of each column, from the bottom up.
        tips: one tooltip per column.
        height: CSS pixels.
        format_value: formats a value of the axis.
        title: accessible name of the chart.
    """
    top = max((sum(one.values[i] for one in series) for i in range(len(labels))), default=0.0)
    axis = _Axis(top, height)
    slot = 100 / max(len(labels), 1)
    width = min(0.78 * slot, 5.0)
    marks = []
    for i, tip in enumerate(tips):
        parts = [_hit_area(slot * i, slot, axis.bottom)]
        y = float(axis.bottom)
        for one in series:
            size = one.values[i] * axis.scale
            if size <= 0:
                continue
            y -= size
            gap = 1.0 if size > 3 else 0.0  # separates neighbors of any color
            parts.append(
                f'<rect class="{one.color}" x="{slot * (i + 0.5) - width / 2:.3f}%" y="{y + gap:.2f}" '
                f'width="{width:.3f}%" height="{max(size - gap, 0.6):.2f}"/>'
            )
        marks.append(_spot("".join(parts), tip))
    return _chart(axis, labels, "".join(marks), format_value, title)


def area(
    labels: Sequence[str],
    values: Sequence[float],
    tips: Sequence[str],
    *,
    height: int,
    format_value: Callable[[float], str],
    title: str,
) -> str:
    """Return a line with a filled area beneath it, over time.

    Args:
        labels: one label per value; an empty label is not drawn.
        values: one value per step of time, 0 or more.
        tips: one tooltip per value.
        height: CSS pixels.
        format_value: formats a value of the axis.
        title: accessible name of the chart.
    """
    axis = _Axis(max(values, default=0.0), height)
    slot = 100 / max(len(values), 1)
    heights = [axis.bottom - value * axis.scale for value in values]
    line = "L".join(f"{i + 0.5} {y:.2f}" for i, y in enumerate(heights))
    # Only this inner drawing is stretched horizontally; the stroke keeps its width.
    drawn = (
        f'<svg viewBox="0 0 {max(len(values), 1)} {height}" preserveAspectRatio="none" width="100%" '
        f'height="{height}">'
        f'<path class="area" d="M0.5 {axis.bottom}L{line}L{len(values) - 0.5} {axis.bottom}Z"/>'
        f'<path class="line" d="M{line}" vector-effect="non-scaling-stroke"/></svg>'
    )
    spots = [
        _spot(
            _hit_area(slot * i, slot, axis.bottom)
            + f'<circle cx="{slot * (i + 0.5):.3f}%" cy="{y:.2f}" r="3.5"/>',
            tip,
        )
        for i, (y, tip) in enumerate(zip(heights, tips, strict=True))
    ]
    return _chart(axis, labels, drawn + "".join(spots), format_value, title)


class _Axis:
    """The vertical scale of a chart.

    Attributes:
        marks: the values that have a line.
        bottom: y of the value 0, in CSS pixels.
        scale: CSS pixels per unit.
    """

    def __init__(self, top: float, height: int) -> None:
        self.height = height
        self.marks = ticks(top)
        self.bottom = height - _BOTTOM
        self.scale = (self.bottom - _TOP) / self.marks[-1]

    def y(self, value: float) -> float:
        return self.bottom - value * self.scale


def _chart(
    axis: _Axis, labels: Sequence[str], marks: str, format_value: Callable[[float], str], title: str
) -> str:
    texts = [(axis.y(mark), format_value(mark)) for mark in axis.marks]
    width = max(_MIN_AXIS, _GAP + math.ceil(_CHARACTER * max(len(text) for _, text in texts)))
    values = "".join(
        f'<text x="{width - _GAP}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for y, text in texts
    )
    lines = "".join(
        f'<line class="{"rule" if mark else "base"}" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        for mark, y in zip(axis.marks, (y for y, _ in texts), strict=True)
    )
    return (
        f'<div class="chart" role="img" aria-label="{escape(title)}">'
        f'<svg class="axis" width="{width}" height="{axis.height}">{values}</svg>'
        f'<svg class="plot" width="100%" height="{axis.height}">{lines}{marks}'
        f"{''.join(_step_labels(labels, axis.height - 6))}</svg></div>"
    )


def _step_labels(labels: Sequence[str], y: int) -> Iterator[str]:
    """Yield the labels that have room; those of class ``extra`` have none on a narrow screen."""
    slot = 100 / max(len(labels), 1)
    shown = [(slot * (i + 0.5), label) for i, label in enumerate(labels) if label]
    wide = math.ceil(len(shown) / _WIDE_LABELS) or 1
    narrow = wide * (math.ceil(len(shown) / wide / _NARROW_LABELS) or 1)
    for i, (x, label) in enumerate(shown):
        if i % wide or (x > 97 and len(shown) > 1):  # the last label could leave the chart
            continue
        kind = ' class="extra"' if i % narrow else ""
        yield f'<text{kind} x="{x:.3f}%" y="{y}" text-anchor="middle">{escape(label)}</text>'


def _hit_area(left: float, width: float, bottom: int) -> str:
    return f'<rect class="hit" x="{left:.3f}%" y="{_TOP}" width="{width:.3f}%" height="{bottom - _TOP}"/>'


def _spot(marks: str, tip: str) -> str:
    return f'<g class="spot">{marks}<title>{escape(tip)}</title></g>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return a legend.

    Args:
        entries: the CSS class of each color, and its name.
    """
    items = (f'<li><span class="key {color}"></span>{escape(name)}</li>' for color, name in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart.

    Attributes:
        name: text above the bar.
        share: length of the bar as a share of the full width, from 0 to 1.
        value: text after the name.
        detail: smaller text after the value.
        tip: tooltip.
        color: the CSS class that colors it.
    """

    name: str
    share: float
    value: str
    detail: str
    tip: str
    color: str = COLORS[0]


def bars(items: Sequence[Bar]) -> str:
    """Return a horizontal bar chart; each bar has its name and value above it."""
    drawn = (_item(bar.name, bar.value, bar.detail, track(bar.share, bar.color, bar.tip)) for bar in items)
    return f'<ul class="bars">{"".join(drawn)}</ul>'


def track(share: float, color: str, tip: str = "") -> str:
    """Return one bar without text.

    Args:
        share: its length as a share of the full width; limited to the range from 0 to 1.
        color: the CSS class that colors it.
        tip: tooltip.
    """
    width = 100 * min(max(share, 0.0), 1.0)
    title = f"<title>{escape(tip)}</title>" if tip else ""
    rect = f'<rect class="{color}" width="{width:.2f}%" height="8" rx="3">{title}</rect>' if width else ""
    return f'<svg class="track" width="100%" height="8" aria-hidden="true">{rect}</svg>'


@dataclass(frozen=True, slots=True)
class PercentileRange:
    """One line of a percentile chart.

    Attributes:
        name: text above the line.
        middle: the median.
        high: the 95th percentile.
        top: the 99th percentile.
        value: text after the name.
        tip: tooltip.
    """

    name: str
    middle: float
    high: float
    top: float
    value: str
    tip: str


def ranges(items: Sequence[PercentileRange], format_value: Callable[[float], str]) -> str:
    """Return percentile ranges on one logarithmic scale.

    Args:
        items: at least one range, with values above 0.
        format_value: formats a value of the scale.
    """
    low = 10 ** math.floor(math.log10(max(min(item.middle for item in items), 1e-6)))
    high = 10 ** math.ceil(math.log10(max([low * 1.01, *(item.top for item in items)])))
    decades = round(math.log10(high / low)) or 1

    def position(value: float) -> float:
        return 100 * math.log10(max(value, low) / low) / decades

    drawn = []
    for item in items:
        middle, upper, top = position(item.middle), position(item.high), position(item.top)
        marks = (
            '<svg class="track" width="100%" height="10" aria-hidden="true"><g>'
            f"<title>{escape(item.tip)}</title>"
            '<rect class="hit" width="100%" height="10"/>'
            f'<rect class="k0 faint" x="{middle:.2f}%" width="{max(top - middle, 0.3):.2f}%" '
            'y="3.5" height="3"/>'
            f'<rect class="k0" x="{middle:.2f}%" width="{max(upper - middle, 0.3):.2f}%" y="2" height="6"/>'
            f'<rect class="median" x="{middle:.2f}%" width="3" height="10" rx="1"/></g></svg>'
        )
        drawn.append(_item(item.name, item.value, "", marks))
    anchors = ["start", *["middle"] * (decades - 1), "end"]
    scale = "".join(
        f'<text x="{100 * k / decades:.2f}%" y="12" text-anchor="{anchor}">'
        f"{escape(format_value(low * 10**k))}</text>"
        for k, anchor in enumerate(anchors)
    )
    return (
        f'<ul class="bars">{"".join(drawn)}</ul>'
        f'<svg class="scale" width="100%" height="16" aria-hidden="true">{scale}</svg>'
    )


def _item(name: str, value: str, detail: str, marks: str) -> str:
    after = f' <span class="soft">{escape(detail)}</span>' if detail else ""
    return (
        f'<li><div class="says"><span class="name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="value">{escape(value)}{after}</span></div>{marks}</li>'
    )
