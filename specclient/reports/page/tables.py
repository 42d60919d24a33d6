"""Turn a report and what speculation saved into tables of HTML, every name escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from specclient.reports.lines import ReportLine
from specclient.reports.report import CostReport
from specclient.reports.savings import Saving
from specclient.reports.text import SAVINGS_TITLES, ReportCells, saving_cells, saving_notes

__all__ = ["cost_first", "folded", "report_table", "row", "savings_table", "table"]


def table(titles: Sequence[str], rows: Sequence[str], *, left: int = 1, caption: str = "") -> str:
    """Return a table that scrolls by itself where it is wider than the page.

    Args:
        rows: as :func:`_row` makes them.
        left: so many columns, the first ones, hold names.
    """
    heads = "".join(
        f'<th scope="col"{" class=left" if i < left else ""}>{escape(title)}</th>'
        for i, title in enumerate(titles)
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        '<div class="wide-table" tabindex="0" role="group" aria-label="Table"><table>'
        f"{said}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Sequence[str], *, left: int = 1, look: str = "", cost: str | None = None, at: int = -1) -> str:
    """Return a row of text.

    Args:
        cost: what one cell says exactly, in dollars; ``at``: its place, the last by default.
    """
    made = [
        f"<td{' class=left' if i < left else ''}{_full(cell) if i < left else ''}>{escape(cell)}</td>"
        for i, cell in enumerate(cells)
    ]
    if cost is not None:
        made[at] = f'<td><data value="{cost}">{escape(cells[at])}</data></td>'
    return f"<tr{f' class={look}' if look else ''}>{''.join(made)}</tr>"


def _full(cell: str) -> str:
    return f' title="{escape(cell)}"' if len(cell) > 30 else ""


def folded(summary: str, content: str) -> str:
    """Return content that is shown when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def report_table(report: CostReport) -> str:
    """Return a report's lines, total and unpriced calls; ``data`` elements hold the exact dollars.

    The cost comes first behind the names, where a narrow screen shows it, too.
    """
    cells, left = ReportCells.of(report), len(report.by)

    def line(texts: Sequence[str], figures: ReportLine, look: str = "") -> str:
        return row(cost_first(texts, left), left=left, look=look, cost=f"{figures.cost:f}", at=left)

    rows = [line(texts, figures) for texts, figures in zip(cells.lines, report.lines, strict=True)]
    rows.append(line(cells.total, report.total, "total"))
    if cells.unpriced is not None:
        rows.append(row(cost_first(cells.unpriced, left), left=left, look="unpriced"))
    return table(cost_first(cells.titles, left), rows, left=left)


def cost_first(cells: Sequence[str], left: int) -> list[str]:
    """Return cells whose last one, the cost, comes first behind so many names."""
    return [*cells[:left], cells[-1], *cells[left:-1]]


def savings_table(savings: Sequence[Saving], by: str) -> str:
    """Return what speculation saved, each line with what it rests on beneath it."""
    rows = []
    for saving in savings:
        why = "<br>".join(escape(note) for note in saving_notes(saving))
        rows.append(row(saving_cells(saving), look="explained"))
        rows.append(f'<tr class=why><td colspan="{len(SAVINGS_TITLES) + 1}"><div>{why}</div></td></tr>')
    return table([by, *SAVINGS_TITLES], rows)
