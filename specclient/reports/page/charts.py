"""Turn numbers into drawings for a page: columns over time, bars, and ranges, as SVG and HTML text. Pure.

Every name is escaped here. A drawing says in words what it shows, and each of its marks what it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "PercentileRange", "Series", "bars", "columns", "legend", "ranges", "ticks"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 4, 8, 24


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of a chart.

    Attributes:
        look: the class of the style sheet that colours it.
        values: one a column, 0 or more.
        says: what each of them stands for.
    """

    name: str
    look: str
    values: Sequence[float]
    says: Sequence[str]


def ticks(top: float, most: int = 5) -> list[float]:
    """Return round numbers from 0 up to the first that is not below ``top``, at most so many steps apart."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [k * step for k in range(math.ceil(top / step - 1e-9) + 1)]


def columns(
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    size: tuple[int, int],
    form: Callable[[float], str],
    title: str,
    look: str,
) -> str:
    """Draw columns, series on series, over labelled steps of time.

    Args:
        size: width and height, in the pixels that text is measured in.
        form: writes a value beside its line.
        title: what is seen, in words.
        look: the class of the drawing.
    """
    width, height = size
    inner, bottom = width - _LEFT - _RIGHT, height - _BOTTOM
    marks = ticks(max((sum(s.values[i] for s in series) for i in range(len(labels))), default=0.0))
    scale = (bottom - _TOP) / marks[-1]
    slot = inner / max(len(labels), 1)
    thick = max(min(slot * 0.78, 46.0), 1.0)
    drawn = [f'<svg class="{look}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for mark in marks:
        y = bottom - mark * scale
        drawn.append(f'<line class="{"rule" if mark else "base"}" x1="{_LEFT}" x2="{width}" {_at(y, y)}/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(form(mark))}</text>')
    every = max(math.ceil(len(labels) / max(inner / 84, 1)), 1)
    for i, label in enumerate(labels):
        left = _LEFT + slot * (i + 0.5)
        if i % every == 0:
            drawn.append(f'<text x="{left:.1f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>')
        y = float(bottom)
        for each in series:
            tall = each.values[i] * scale
            if tall <= 0:
                continue
            y -= tall
            gap = 1.0 if tall > 3 else 0.0  # so that neighbours of any colour stay apart
            drawn.append(
                f'<rect class="{each.look}" x="{left - thick / 2:.1f}" y="{y + gap:.2f}" width="{thick:.1f}" '
                f'height="{max(tall - gap, 0.6):.2f}"><title>{escape(each.says[i])}</title></rect>'
            )
    drawn.append("</svg>")
    return "".join(drawn)


def _at(y1: float, y2: float) -> str:
    return f'y1="{y1:.1f}" y2="{y2:.1f}"'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Name the colours of a chart.

    Args:
        entries: the class that colours it, and the name.
    """
    items = (f'<li><span class="key {look}"></span>{escape(name)}</li>' for look, name in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        share: of the full width, from 0 to 1.
        value: beside its name; ``beside``: smaller, after that.
        says: what it stands for, in a sentence.
    """

    name: str
    share: float
    value: str
    beside: str
    says: str
    look: str = "k0"


def bars(items: Sequence[Bar]) -> str:
    """Draw bars under each other, each under its own name, at any width."""
    drawn = []
    for bar in items:
        width = 100 * min(max(bar.share, 0.0), 1.0)
        said = f"<title>{escape(bar.says)}</title>"
        rect = f'<rect class="{bar.look}" width="{width:.2f}" height="10">{said}</rect>'
        drawn.append(_lying(bar.name, bar.value, bar.beside, rect if width else ""))
    return f'<ul class="bars">{"".join(drawn)}</ul>'


@dataclass(frozen=True, slots=True)
class PercentileRange:
    """Where a quantity lies: half of it up to ``middle``, and nearly all of it up to ``high`` and ``top``."""

    name: str
    middle: float
    high: float
    top: float
    value: str
    says: str


def ranges(items: Sequence[PercentileRange], form: Callable[[float], str]) -> str:
    """Draw ranges under each other on one logarithmic scale."""
    low = 10 ** math.floor(math.log10(min(item.middle for item in items)))
    high = 10 ** math.ceil(math.log10(max([low * 1.01, *(item.top for item in items)])))
    decades = round(math.log10(high / low)) or 1

    def place(value: float) -> float:
        return 100 * math.log10(max(value, low) / low) / decades

    drawn = []
    for item in items:
        middle, upper, top = place(item.middle), place(item.high), place(item.top)
        marks = (
            f'<g><title>{escape(item.says)}</title><rect width="100" height="10" fill="transparent"/>'
            f'<rect class="k0 faint" x="{middle:.2f}" width="{max(top - middle, 0.3):.2f}" y="3" height="4"/>'
            f'<rect class="k0" x="{middle:.2f}" width="{max(upper - middle, 0.3):.2f}" y="2" height="6"/>'
            f'<rect class="k1" x="{max(middle - 0.4, 0):.2f}" width="0.8" height="10"/></g>'
        )
        drawn.append(_lying(item.name, item.value, "", marks))
    steps = [low * 10**k for k in range(decades + 1)]
    scale = "".join(f'<span style="left:{place(step):.2f}%">{escape(form(step))}</span>' for step in steps)
    return f'<ul class="bars">{"".join(drawn)}</ul><div class="scale" aria-hidden="true">{scale}</div>'


def _lying(name: str, value: str, beside: str, marks: str) -> str:
    after = f' <span class="soft">{escape(beside)}</span>' if beside else ""
    return (
        f'<li><div class="says"><span class="name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="value">{escape(value)}{after}</span></div><div class="track">'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{marks}</svg></div></li>'
    )
