"""Rows of single calls: their selection and their cells."""

from __future__ import annotations

from collections.abc import Iterator

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.reports.reader import CallFilter, matching_rows
from specclient.reports.text import UNKNOWN, format_dollars


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
