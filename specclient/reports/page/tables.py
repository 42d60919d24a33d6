"""HTML tables of reports and of savings. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from specclient.ledger.figures import CallTotals
from specclient.reports.report import CostReport
from specclient.reports.savings import Saving
from specclient.reports.text import SAVINGS_TITLES, ReportCells, saving_cells, saving_notes

__all__ = ["cost_first", "folded", "report_table", "row", "savings_table", "table"]


def table(titles: Sequence[str], rows: Sequence[str], *, left: int = 1, caption: str = "") -> str:
    """Return a table that scrolls horizontally if it is wider than the page.

    Args:
        titles: one heading per column.
        rows: rows made by :func:`row`.
        left: number of leading columns that are aligned left because they hold names.
        caption: text above the table.
    """
    heads = "".join(
        f'<th scope="col"{" class=left" if i < left else ""}>{escape(title)}</th>'
        for i, title in enumerate(titles)
    )
    described = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        '<div class="wide-table" tabindex="0" role="group" aria-label="Table"><table>'
        f"{described}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Sequence[str], *, left: int = 1, kind: str = "", cost: str | None = None, at: int = -1) -> str:
    """Return a table row.

    Args:
        cells: the text of each cell.
        left: number of leading cells that hold names.
        kind: CSS class of the row.
        cost: exact dollars of the cost cell, for programs that read the page.
        at: index of the cost cell; the last one by default.
    """
    made = [
        f"<td{' class=left' if i < left else ''}{_full(cell) if i < left else ''}>{escape(cell)}</td>"
        for i, cell in enumerate(cells)
    ]
    if cost is not None:
        made[at] = f'<td><data value="{cost}">{escape(cells[at])}</data></td>'
    return f"<tr{f' class={kind}' if kind else ''}>{''.join(made)}</tr>"


def _full(cell: str) -> str:
    return f' title="{escape(cell)}"' if len(cell) > 30 else ""


def folded(summary: str, content: str) -> str:
    """Return content that is hidden until the reader opens it."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def report_table(report: CostReport) -> str:
    """Return a report's lines, total and unpriced calls; ``data`` elements hold the exact dollars.

    The cost follows the names directly, so that it is visible on a narrow screen.
    """
    cells, left = ReportCells.of(report), len(report.by)

    def line(texts: Sequence[str], figures: CallTotals, kind: str = "") -> str:
        return row(cost_first(texts, left), left=left, kind=kind, cost=f"{figures.cost:f}", at=left)

    rows = [line(texts, figures) for texts, figures in zip(cells.lines, report.lines, strict=True)]
    rows.append(line(cells.total, report.total, "total"))
    if cells.unpriced is not None:
        rows.append(row(cost_first(cells.unpriced, left), left=left, kind="unpriced"))
    return table(cost_first(cells.titles, left), rows, left=left)


def cost_first(cells: Sequence[str], left: int) -> list[str]:
    """Return cells with the last one, the cost, moved behind the ``left`` leading names."""
    return [*cells[:left], cells[-1], *cells[left:-1]]


def savings_table(savings: Sequence[Saving], by: str) -> str:
    """Return a table of savings; the row below each line states the basis of its estimate."""
    rows = []
    for saving in savings:
        why = "<br>".join(escape(note) for note in saving_notes(saving))
        rows.append(row(saving_cells(saving), kind="explained"))
        rows.append(f'<tr class=why><td colspan="{len(SAVINGS_TITLES) + 1}"><div>{why}</div></td></tr>')
    return table([by, *SAVINGS_TITLES], rows)
