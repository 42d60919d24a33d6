"""Rows of single calls: their selection, their cells and their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.reports.reader import CallFilter, matching_rows
from specclient.reports.text import UNKNOWN, format_dollars, format_seconds
from specclient_cli.common import render
from specclient_cli.cost.report_options import one_line


def select_rows(ledger: Ledger, where: CallFilter) -> Iterator[LedgerRow]:
    """Yield the calls that match a filter, oldest first."""
    return matching_rows(ledger.iterate(where.since, where.until), where)


def format_count(tokens: int | None) -> str:
    """Return a number of tokens; a dash if it is unknown."""
    return UNKNOWN if tokens is None else f"{tokens:,}"


def format_cost(row: LedgerRow) -> str:
    """Return a call's cost in dollars, or ``unknown``; ``~`` marks an estimate."""
    dollars, estimated = row.cost, row.cost_estimated or row.usage_estimated
    return "unknown" if dollars is None else format_dollars(dollars, estimated=estimated)


def show_calls(rows: Sequence[LedgerRow]) -> None:
    """Print a table of calls."""
    columns = [
        render.TableColumn("started (UTC)", rank=3),
        render.TableColumn("model"),
        render.TableColumn("in", right=True, rank=2),
        render.TableColumn("out", right=True, rank=2),
        render.TableColumn("time", right=True, rank=1),
        render.TableColumn("tags", rank=5),
        render.TableColumn("request id", rank=4),
        render.TableColumn("cost", right=True),
    ]
    render.print_table(columns, [render.TableRow(_cells(row)) for row in rows])


def _cells(row: LedgerRow) -> list[str]:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    return [
        f"{row.started_at:%Y-%m-%d %H:%M:%S}",
        one_line(row.route),
        format_count(row.prompt_tokens),
        format_count(row.completion_tokens),
        format_seconds(row.latency_s),
        one_line(tags),
        one_line(row.request_id or UNKNOWN),
        format_cost(row),
    ]
