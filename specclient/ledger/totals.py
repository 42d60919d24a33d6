"""Totals over any span of time: sums of whole hours from ``calls_by_hour``, and rows at both ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain

from specclient.errors import ConfigurationError
from specclient.ledger.encoding import timestamp
from specclient.ledger.figures import SUM_NAMES, CallTotals, GroupKey
from specclient.ledger.rollup import SELECT_SUMMED, hour_ceil, hour_floor
from specclient.ledger.schema import HOURS_TABLE
from specclient.ledger.store import LedgerStore, RowValues
from specclient.ledger.sums import DIMENSION_NAMES, add_sums, hour_of, sum_rows, summed_values

__all__ = ["ROLLUP_GROUPS", "totals_by_group"]

#: Longer spans of time, as the length of their prefix of an hour's text.
_SPANS = {"day": 10, "month": 7}
#: Names to group by, each with the SQL expression that reads it from ``calls_by_hour``.
ROLLUP_GROUPS = {name: name for name in DIMENSION_NAMES} | {
    name: f"substr(hour, 1, {length})" for name, length in _SPANS.items()
}

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def totals_by_group(
    store: LedgerStore | None,
    since: datetime | None,
    until: datetime | None,
    by: Sequence[str],
    waiting: Iterable[RowValues] = (),
) -> list[CallTotals]:
    """Return the totals of the rows that started in ``[since, until)``, by group, in the order of groups.

    Args:
        store: None if there is nothing to read.
        by: names of :data:`ROLLUP_GROUPS`.
        waiting: rows within these bounds that are not in the database yet.

    Raises:
        ConfigurationError: an unknown name to group by.
        LedgerError: the database cannot be read.
    """
    if unknown := [name for name in by if name not in ROLLUP_GROUPS]:
        raise ConfigurationError(f"cannot sum by {unknown[0]!r}; the names are {', '.join(ROLLUP_GROUPS)}")
    since = _FIRST if since is None else since.astimezone(UTC)
    until = _LAST if until is None else until.astimezone(UTC)
    first, last = hour_ceil(since), hour_floor(until)
    ends = [(since, first), (last, until)] if first <= last else [(since, until)]
    rows: Iterator[RowValues] = map(summed_values, waiting)
    groups: dict[GroupKey, list[int]] = {}
    if store is not None:
        if first < last:
            for key, sums in _whole_hours(store, hour_of(timestamp(first)), hour_of(timestamp(last)), by):
                add_sums(groups, key, sums)
        bounds = ({"since": timestamp(begin), "until": timestamp(end)} for begin, end in ends if begin < end)
        rows = chain(rows, *(store.query(SELECT_SUMMED, each) for each in bounds))
    for key, sums in sum_rows(rows).items():
        add_sums(groups, tuple(_group_value(key, name) for name in by), sums)
    return [CallTotals.of(group, sums) for group, sums in sorted(groups.items())]


def _whole_hours(
    store: LedgerStore, first: str, last: str, by: Sequence[str]
) -> Iterator[tuple[GroupKey, list[int]]]:
    columns = [ROLLUP_GROUPS[name] for name in by]
    sql = f"""SELECT {", ".join((*columns, *(f"SUM({name})" for name in SUM_NAMES)))} FROM {HOURS_TABLE}
        WHERE hour >= :first AND hour < :last{" GROUP BY " * bool(by)}{", ".join(columns)}"""  # noqa: S608
    for row in store.query(sql, {"first": first, "last": last}):
        if row[len(by)] is not None:  # the SUM over no rows at all is NULL
            yield tuple(map(str, row[: len(by)])), [int(n or 0) for n in row[len(by) :]]


def _group_value(key: GroupKey, name: str) -> str:
    return key[0][: _SPANS[name]] if name in _SPANS else key[DIMENSION_NAMES.index(name)]
