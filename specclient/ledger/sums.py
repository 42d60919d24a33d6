"""Sums over rows of the ledger, grouped by the dimensions of ``calls_by_hour``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import add, itemgetter
from typing import Any, NamedTuple

from specclient.ledger.figures import FIGURES, GroupKey
from specclient.ledger.row import COLUMN_NAMES

__all__ = [
    "DIMENSIONS",
    "DIMENSION_NAMES",
    "SUMMED_COLUMNS",
    "Dimension",
    "add_sums",
    "hour_of",
    "sum_rows",
    "summed_values",
    "sums_of",
]


class Dimension(NamedTuple):
    """A value by which ``calls_by_hour`` groups rows.

    Attributes:
        column: the column of ``calls`` that it is read from.
        text: returns the value as text, given the column's value.
    """

    name: str
    column: str
    text: Callable[[Any], str]


def _text_or_empty(value: str | None) -> str:
    return value or ""


def hour_of(timestamp: str) -> str:
    """Return the hour of a time, as ``calls_by_hour`` writes it. The time is text as in ``calls``."""
    return f"{timestamp[:10]} {timestamp[11:13]}:00"


#: The dimensions are the primary key of ``calls_by_hour``.
DIMENSIONS = (
    Dimension("hour", "started_at", hour_of),
    Dimension("operation", "operation", str),
    Dimension("provider", "provider", str),
    Dimension("model", "model", str),
    Dimension("served", "served_model", _text_or_empty),
    Dimension("route", "route", str),
    Dimension("status", "status", str),
    Dimension("error", "error", _text_or_empty),
    Dimension("streamed", "streamed", lambda streamed: "true" if streamed else "false"),
    Dimension("purpose", "purpose", lambda purpose: purpose or "call"),
    Dimension("strategy", "strategy", _text_or_empty),
    Dimension("pair", "pair", _text_or_empty),
    Dimension("method", "method", _text_or_empty),
)
DIMENSION_NAMES = tuple(each.name for each in DIMENSIONS)

#: The columns of ``calls`` from which the sums are computed, the dimensions' columns first.
SUMMED_COLUMNS = tuple(
    dict.fromkeys(
        [*(each.column for each in DIMENSIONS), *(name for figure in FIGURES for name in figure.columns)]
    )
)
#: Reads the values of these columns from a row.
summed_values = itemgetter(*map(COLUMN_NAMES.index, SUMMED_COLUMNS))

_PLACES = [[SUMMED_COLUMNS.index(name) for name in figure.columns] for figure in FIGURES]
_SUMMERS = [figure.summer(places) for figure, places in zip(FIGURES, _PLACES, strict=True)]
_READERS = [figure.reader(places) for figure, places in zip(FIGURES, _PLACES, strict=True)]
_dimension_values = itemgetter(*(SUMMED_COLUMNS.index(each.column) for each in DIMENSIONS[1:]))
#: Rows summed up at a time, so that memory is bounded.
_BATCH = 2_000


def sums_of(rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return the sums over rows, in the order of :data:`SUM_NAMES`.

    Args:
        rows: the values of :data:`SUMMED_COLUMNS`; at least one row.
    """
    sums: list[int] = []
    if len(rows) == 1:
        for reader in _READERS:
            sums += reader(rows[0])
        return sums
    columns = list(zip(*rows, strict=True))
    for summer in _SUMMERS:
        sums += summer(columns)
    return sums


def add_sums(groups: dict[GroupKey, list[int]], key: GroupKey, sums: list[int]) -> None:
    """Add sums to those of a group."""
    known = groups.get(key)
    groups[key] = sums if known is None else list(map(add, known, sums))


def sum_rows(rows: Iterable[Sequence[Any]]) -> dict[GroupKey, list[int]]:
    """Return the sums of rows by the values of :data:`DIMENSIONS`.

    Rows are summed column by column, which is faster than row by row.

    Args:
        rows: the values of :data:`SUMMED_COLUMNS`, as a database has them.
    """
    groups: dict[GroupKey, list[int]] = {}
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH)):
        grouped: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
        for row in batch:
            grouped.setdefault((row[0][:13], *_dimension_values(row)), []).append(row)
        for values, members in grouped.items():
            key = tuple([each.text(value) for each, value in zip(DIMENSIONS, values, strict=True)])
            add_sums(groups, key, sums_of(members))
    return groups
