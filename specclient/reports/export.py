"""Export of rows of the ledger as lines of CSV or JSON, one at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from specclient.ledger.encoding import timestamp
from specclient.ledger.row import COLUMN_NAMES, LedgerRow
from specclient.reports.csv_cells import safe_cell

__all__ = ["EXPORT_FORMATS", "ExportFormat", "export_lines", "json_row"]

ExportFormat = Literal["csv", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("csv", "jsonl")

_NAMES = (*COLUMN_NAMES, "cost")


def json_row(row: LedgerRow) -> dict[str, Any]:
    """Return a row as values for JSON: times in UTC, and ``cost`` as exact dollars in text."""
    cost = row.cost
    return {
        **row.to_dict(),
        "started_at": timestamp(row.started_at),
        "cost": None if cost is None else f"{cost:f}",
    }


def export_lines(rows: Iterable[LedgerRow], form: ExportFormat) -> Iterator[str]:
    """Yield the lines of an export, each with a line break; CSV starts with a header.

    In CSV an unknown value is empty, a mapping is JSON, and a text that a spreadsheet would run as a formula
    begins with an apostrophe.
    """
    if form == "jsonl":
        for row in rows:
            yield json.dumps(json_row(row), separators=(",", ":")) + "\n"
        return
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_NAMES)
    yield out.getvalue()
    for row in rows:
        out.seek(0)
        out.truncate()
        writer.writerow(_cell(value) for value in json_row(row).values())
        yield out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return safe_cell(value) if not isinstance(value, bool) else str(value).lower()
