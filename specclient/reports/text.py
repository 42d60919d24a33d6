"""Texts of a report: its figures, notes on them, and tables of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from specclient.ledger.figure_kinds import Computed, Figure
from specclient.ledger.figures import ENTRIES, CallTotals
from specclient.reports.report import CostReport
from specclient.reports.savings import Saving

__all__ = [
    "REPORT_COLUMNS",
    "SAVINGS_TITLES",
    "UNKNOWN",
    "ReportCells",
    "ReportColumn",
    "cost_of",
    "format_dollars",
    "format_percent",
    "format_seconds",
    "markdown",
    "notes",
    "saving_cells",
    "saving_notes",
    "visible_columns",
]

UNKNOWN = "–"
_CENT = Decimal("0.01")


def format_dollars(dollars: Decimal, *, estimated: bool = False) -> str:
    """Return dollars as text: to the cent from one dollar on, below that to three significant digits.

    Args:
        estimated: whether to mark them with a ``~``.
    """
    size = abs(dollars)
    text = f"{size.quantize(_CENT):,f}" if size >= 1 else _digits(size)
    return f"{'~' if estimated else ''}{'−' if dollars < 0 else ''}${text}"


def format_seconds(duration: float, *, rounded: bool = False) -> str:
    """Return a duration in seconds to three significant digits; ``rounded`` marks it with an ``≈``."""
    sign = "−" if duration < 0 else ""
    return f"{'≈' if rounded else ''}{sign}{_digits(Decimal(repr(abs(duration))))} s"


def format_percent(part: float) -> str:
    """Return a ratio in percent."""
    return f"{part:.1%}" if 0 < part < 0.01 or 0.99 < part < 1 else f"{part:.0%}"


def _digits(value: Decimal) -> str:
    text = f"{Decimal(f'{value:.3g}'):f}" if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cost_of(totals: CallTotals) -> str:
    """Return the cost of a group as text: unknown, not zero, if every billable call is unpriced."""
    if totals.unpriced and not totals.cost_nano:
        return "unknown"
    return format_dollars(totals.cost, estimated=totals.estimated)


#: How a known value is written, by ``ReportText.form``: a function of the value and whether the percentiles
#: of the report are rounded.
FORMS: Mapping[str, Callable[[Any, bool], str]] = {
    "count": lambda value, _: f"{value:,}",
    "percent": lambda value, _: format_percent(value),
    "decimal": lambda value, _: f"{value:.2f}",
    "rate": lambda value, _: _digits(Decimal(repr(value))),
    "latency": lambda value, rounded: format_seconds(value, rounded=rounded),
    "dollars": lambda value, _: format_dollars(value),
}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report, for one figure of :class:`specclient.ledger.figures.CallTotals`.

    Attributes:
        title: its heading.
        rank: columns of the highest rank are omitted first if there is no room; 0 never is.
    """

    title: str
    rank: int
    _figure: Figure[Any] | Computed[Any]
    _form: str
    _always: bool

    def text(self, line: CallTotals, *, rounded: bool) -> str:
        """Return the text of the column in a line of a report; ``rounded`` is the report's."""
        if self._form == "cost":
            return cost_of(line)
        value = getattr(line, self._figure.name)
        return UNKNOWN if value is None else FORMS[self._form](value, rounded)

    def is_shown(self, total: CallTotals) -> bool:
        """Return whether the column has information about a report, given the report's total."""
        value = getattr(total, self._figure.name)
        return self._always or (value is not None if isinstance(self._figure, Computed) else bool(value))


REPORT_COLUMNS: tuple[ReportColumn, ...] = tuple(
    ReportColumn(text.title, text.rank, figure, text.form, text.always)
    for text, figure in sorted(
        ((figure.text, figure) for figure in ENTRIES if figure.text is not None),
        key=lambda pair: pair[0].place,
    )
)


def visible_columns(report: CostReport) -> list[ReportColumn]:
    """Return the columns with information about a report."""
    return [column for column in REPORT_COLUMNS if column.is_shown(report.total)]


@dataclass(frozen=True, slots=True)
class ReportCells:
    """A report as text, one cell per column.

    Attributes:
        unpriced: a line for the calls of unknown cost, which the other lines include; None without any.
    """

    titles: list[str]
    lines: list[list[str]]
    total: list[str]
    unpriced: list[str] | None

    @classmethod
    def of(cls, report: CostReport) -> ReportCells:
        """Return the cells of the visible columns."""
        columns = visible_columns(report)

        def texts(line: CallTotals) -> list[str]:
            return [column.text(line, rounded=report.rounded) for column in columns]

        blank = [""] * (len(report.by) - 1)
        first = ["total", *blank] if report.by else []
        unpriced = None
        if report.by and (calls := report.total.unpriced):
            known = {"calls": f"{calls:,}", "unpriced": f"{calls:,}", "cost": "unknown"}
            unpriced = ["unpriced", *blank, *(known.get(column.title, "") for column in columns)]
        return cls(
            titles=[*report.by, *(column.title for column in columns)],
            lines=[[*(value or UNKNOWN for value in line.group), *texts(line)] for line in report.lines],
            total=[*first, *texts(report.total)],
            unpriced=unpriced,
        )


def notes(report: CostReport) -> list[str]:
    """Return explanations of the marks in a report."""
    total, lines = report.total, list[str]()
    if total.estimated:
        lines.append("~ based on an assumed price or an estimated token count")
    if report.rounded:
        lines.append("≈ read from sums by hour: up to a fifth off the exact value")
    if total.unpriced:
        calls = "1 call has" if total.unpriced == 1 else f"{total.unpriced:,} calls have"
        lines.append(
            f"{calls} no known price and {'is' if total.unpriced == 1 else 'are'} not in the sum; "
            'set [prices."PROVIDER/MODEL"] in specclient.toml'
        )
        if total.unanswered:
            unanswered = "it" if total.unanswered == total.unpriced == 1 else f"{total.unanswered:,} of them"
            lines.append(f"{unanswered} got no response: whether it was billed is not known")
    if total.parts:
        lines.append(
            f"{total.parts:,} of the calls are parts of others: rounds of a strategy, or attempts without a "
            "response; each is counted and billed once"
        )
    return lines


SAVINGS_TITLES = ("calls", "saved", "speedup", "cost", "cost alone", "time", "time alone", "accepted")


def _known(value: float | None, form: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else form(value)


def saving_cells(saving: Saving) -> list[str]:
    """Return the savings of one group as text: its name, and a cell for each of :data:`SAVINGS_TITLES`."""

    def dollars(nano: int | None) -> str:
        known = None if nano is None else Decimal(nano).scaleb(-9)
        return UNKNOWN if known is None else format_dollars(known, estimated=saving.estimated)

    saved = saving.saved
    return [
        saving.group or UNKNOWN,
        f"{saving.calls:,}",
        UNKNOWN if saved is None else format_dollars(saved, estimated=saving.estimated),
        _known(saving.speedup, lambda v: f"{v:.2f}×"),
        dollars(saving.cost_nano),
        dollars(saving.alone_nano),
        _known(saving.latency_s, format_seconds),
        _known(saving.alone_s, format_seconds),
        _known(saving.acceptance_rate, format_percent),
    ]


def saving_notes(saving: Saving) -> list[str]:
    """Return the assumptions behind the savings of one group, or what is missing for an estimate."""
    assumptions = {"cost": saving.cost_assumption, "time": saving.latency_assumption}
    return [f"{name}: {text}" for name, text in assumptions.items() if text]


def markdown(report: CostReport, savings: Iterable[Saving] = (), *, by: str = "pair") -> str:
    """Return a report as Markdown: tables, then explanations of their marks.

    Args:
        by: the grouping of the savings.
    """
    table = ReportCells.of(report)
    total = [f"**{_escaped(cell)}**" if cell else "" for cell in table.total]
    rows = [*(list(map(_escaped, line)) for line in table.lines), total, *filter(None, [table.unpriced])]
    parts = [_table(table.titles, rows, len(report.by))]
    parts += [f"{note}  " for note in notes(report)]
    if found := list(savings):
        parts += ["", "### Savings by speculation", ""]
        parts.append(
            _table([by, *SAVINGS_TITLES], [list(map(_escaped, saving_cells(each))) for each in found], 1)
        )
        for each in found:
            parts += [f"- {_escaped(each.group)}, {note}" for note in saving_notes(each)]
    return "\n".join(parts).rstrip() + "\n"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    marks = ["---" if i < left else "---:" for i in range(len(titles))]
    lines = [_row(titles), _row(marks), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _escaped(text: str) -> str:
    """Return text escaped for one cell of a Markdown table."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")
    return plain.replace("<", "&lt;").replace(">", "&gt;")
