"""Turn a report's figures into words, and into tables of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from specclient.reports.lines import ReportLine
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
    """Return dollars as people read them: to the cent from one dollar on, below to three digits.

    Args:
        estimated: marks them with a ``~``.
    """
    size = abs(dollars)
    text = f"{size.quantize(_CENT):,f}" if size >= 1 else _digits(size)
    return f"{'~' if estimated else ''}{'−' if dollars < 0 else ''}${text}"


def format_seconds(duration: float, *, rounded: bool = False) -> str:
    """Return a duration to three digits; ``rounded`` marks it with an ``≈``."""
    sign = "−" if duration < 0 else ""
    return f"{'≈' if rounded else ''}{sign}{_digits(Decimal(repr(abs(duration))))} s"


def format_percent(part: float) -> str:
    """Return a part of a whole in percent."""
    return f"{part:.1%}" if 0 < part < 0.01 or 0.99 < part < 1 else f"{part:.0%}"


def _digits(value: Decimal) -> str:
    text = f"{Decimal(f'{value:.3g}'):f}" if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report.

    Attributes:
        title: its heading.
        text: what a line says there; ``rounded`` is of its report.
        rank: columns of the highest rank are left out first where there is no room; 0 never is.
        matters: whether it has anything to tell of a report, by its total.
    """

    title: str
    text: Callable[[ReportLine, bool], str]
    rank: int
    matters: Callable[[ReportLine], bool] = lambda _: True


def _known(value: float | None, form: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else form(value)


def _latency(name: str) -> Callable[[ReportLine, bool], str]:
    return lambda line, rounded: _known(getattr(line, name), lambda v: format_seconds(v, rounded=rounded))


REPORT_COLUMNS: tuple[ReportColumn, ...] = (
    ReportColumn("calls", lambda line, _: f"{line.calls:,}", 1),
    ReportColumn("failed", lambda line, _: f"{line.errors:,}", 2, lambda total: total.errors > 0),
    ReportColumn("in", lambda line, _: f"{line.tokens_in:,}", 3),
    ReportColumn("out", lambda line, _: f"{line.tokens_out:,}", 3),
    ReportColumn(
        "cached", lambda line, _: f"{line.tokens_cached:,}", 8, lambda total: total.tokens_cached > 0
    ),
    ReportColumn(
        "accepted",
        lambda line, _: _known(line.acceptance_rate, format_percent),
        4,
        lambda total: total.acceptance_rate is not None,
    ),
    ReportColumn(
        "tokens/pass",
        lambda line, _: _known(line.mean_accepted_length if line.drafted else None, lambda v: f"{v:.2f}"),
        5,
        lambda total: bool(total.mean_accepted_length and total.drafted),
    ),
    ReportColumn(
        "tokens/s", lambda line, _: _known(line.tokens_per_s, lambda v: _digits(Decimal(repr(v)))), 4
    ),
    ReportColumn("p50", _latency("latency_p50_s"), 6),
    ReportColumn("p95", _latency("latency_p95_s"), 7),
    ReportColumn("unpriced", lambda line, _: f"{line.unpriced:,}", 2, lambda total: total.unpriced > 0),
    ReportColumn("cost", lambda line, _: cost_of(line), 0),
)


def cost_of(line: ReportLine) -> str:
    """Return what a group's calls cost: unknown, and not zero, where nothing but unpriced ones may have."""
    if line.unpriced and not line.cost_nano:
        return "unknown"
    return format_dollars(line.cost, estimated=line.estimated)


def visible_columns(report: CostReport) -> list[ReportColumn]:
    """Return the columns that have something to tell."""
    return [figure for figure in REPORT_COLUMNS if figure.matters(report.total)]


@dataclass(frozen=True, slots=True)
class ReportCells:
    """A report as text, a cell a column.

    Attributes:
        unpriced: of the calls that have no known cost, which the lines count, too; None without any.
    """

    titles: list[str]
    lines: list[list[str]]
    total: list[str]
    unpriced: list[str] | None

    @classmethod
    def of(cls, report: CostReport) -> ReportCells:
        """Return the cells of the columns that have something to tell."""
        figures = visible_columns(report)

        def told(line: ReportLine) -> list[str]:
            return [figure.text(line, report.rounded) for figure in figures]

        blank = [""] * (len(report.by) - 1)
        first = ["total", *blank] if report.by else []
        unpriced = None
        if report.by and (calls := report.total.unpriced):
            known = {"calls": f"{calls:,}", "unpriced": f"{calls:,}", "cost": "unknown"}
            unpriced = ["unpriced", *blank, *(known.get(f.title, "") for f in figures)]
        return cls(
            titles=[*report.by, *(figure.title for figure in figures)],
            lines=[[*(value or UNKNOWN for value in line.group), *told(line)] for line in report.lines],
            total=[*first, *told(report.total)],
            unpriced=unpriced,
        )


def notes(report: CostReport) -> list[str]:
    """Return what the marks of a report mean, those that it has."""
    total, said = report.total, []
    if total.estimated:
        said.append("~ rests on an assumed price or an estimated token count")
    if report.rounded:
        said.append("≈ read from sums by hour: up to a fifth beside the truth")
    if total.unpriced:
        calls = "1 call has" if total.unpriced == 1 else f"{total.unpriced:,} calls have"
        said.append(
            f"{calls} no known price and {'is' if total.unpriced == 1 else 'are'} not in the sum; "
            'set [prices."PROVIDER/MODEL"] in specclient.toml'
        )
        if total.unanswered:
            them = "it" if total.unanswered == total.unpriced == 1 else f"{total.unanswered:,} of them"
            said.append(f"{them} got no answer: whether it was billed is not known")
    if total.parts:
        said.append(
            f"{total.parts:,} of the calls are parts of others: rounds of a strategy, or tries without an "
            "answer; each is counted and billed once"
        )
    return said


SAVINGS_TITLES = ("calls", "saved", "speedup", "cost", "cost alone", "time", "time alone", "accepted")


def saving_cells(saving: Saving) -> list[str]:
    """Return what speculation saved one group as text, under :data:`SAVINGS_TITLES`."""

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
    """Return what the figures of one group rest on, or what is missing for them."""
    said = {"cost": saving.cost_assumption, "time": saving.latency_assumption}
    return [f"{name}: {text}" for name, text in said.items() if text]


def markdown(report: CostReport, savings: Iterable[Saving] = (), *, by: str = "pair") -> str:
    """Return a report as Markdown: tables, then what their marks mean.

    Args:
        by: what the savings are grouped by.
    """
    table = ReportCells.of(report)
    total = [f"**{_escaped(cell)}**" if cell else "" for cell in table.total]
    rows = [*(list(map(_escaped, line)) for line in table.lines), total, *filter(None, [table.unpriced])]
    parts = [_table(table.titles, rows, len(report.by))]
    parts += [f"{note}  " for note in notes(report)]
    if found := list(savings):
        parts += ["", "### What speculation saved", ""]
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
    """Return text that Markdown shows as it is, in one cell."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")
    return plain.replace("<", "&lt;").replace(">", "&gt;")
