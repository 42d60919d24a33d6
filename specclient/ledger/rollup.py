"""The table ``calls_by_hour``: sums of rows by hour; :mod:`specclient.ledger.totals` reads them.

Every transaction that adds or removes rows updates the sums, so that both agree at any time. All sums are
whole numbers and therefore agree exactly. Hours are in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from specclient.ledger.encoding import timestamp
from specclient.ledger.figures import SUM_NAMES, GroupKey
from specclient.ledger.row import ORDER_COLUMN
from specclient.ledger.schema import CALLS_TABLE, HOURS_TABLE
from specclient.ledger.store import Execute, RowValues
from specclient.ledger.sums import DIMENSION_NAMES, SUMMED_COLUMNS, hour_of, sum_rows, summed_values

__all__ = ["SELECT_SUMMED", "add_rows", "hour_ceil", "hour_floor", "prune", "rebuild"]

#: Reads the columns that are summed, of the rows that started in a span of time.
SELECT_SUMMED = (
    f"SELECT {', '.join(SUMMED_COLUMNS)} FROM {CALLS_TABLE} "  # noqa: S608
    f"WHERE {ORDER_COLUMN} >= :since AND {ORDER_COLUMN} < :until"
)
_NAMES = (*DIMENSION_NAMES, *SUM_NAMES)
_ADD = f"""INSERT INTO {HOURS_TABLE} ({", ".join(_NAMES)})
    VALUES ({", ".join(f":{name}" for name in _NAMES)})
    ON CONFLICT ({", ".join(DIMENSION_NAMES)})
    DO UPDATE SET {", ".join(f"{name} = {HOURS_TABLE}.{name} + excluded.{name}" for name in SUM_NAMES)}"""  # noqa: S608


def add_rows(execute: Execute, rows: Iterable[RowValues]) -> None:
    """Add rows that are new in this transaction to the sums."""
    _store(execute, sum_rows(map(summed_values, rows)))


def rebuild(execute: Execute, hour: str | None = None) -> None:
    """Compute the sums of an hour from its rows again, or those of all hours."""
    if hour is None:
        execute(f"DELETE FROM {HOURS_TABLE}")  # noqa: S608
        for (found,) in execute(f"SELECT DISTINCT substr({ORDER_COLUMN}, 1, 13) FROM {CALLS_TABLE}"):  # noqa: S608
            rebuild(execute, hour_of(str(found)))
        return
    begin = datetime.fromisoformat(hour).replace(tzinfo=UTC)
    execute(f"DELETE FROM {HOURS_TABLE} WHERE hour = :hour", {"hour": hour})  # noqa: S608
    bounds = {"since": timestamp(begin), "until": timestamp(begin + timedelta(hours=1))}
    _store(execute, sum_rows(execute(SELECT_SUMMED, bounds)))


def prune(execute: Execute, before: datetime) -> int:
    """Remove the rows that started before an instant, and their sums; return the number of rows."""
    bound = {"before": timestamp(before)}
    ((found,),) = execute(f"SELECT COUNT(*) FROM {CALLS_TABLE} WHERE {ORDER_COLUMN} < :before", bound)  # noqa: S608
    execute(f"DELETE FROM {CALLS_TABLE} WHERE {ORDER_COLUMN} < :before", bound)  # noqa: S608
    hour = hour_of(bound["before"])
    execute(f"DELETE FROM {HOURS_TABLE} WHERE hour < :hour", {"hour": hour})  # noqa: S608
    if before != hour_floor(before):
        rebuild(execute, hour)
    return int(found or 0)


def _store(execute: Execute, groups: dict[GroupKey, list[int]]) -> None:
    for key in sorted(groups):  # one order for all writers prevents deadlocks
        execute(_ADD, dict(zip(_NAMES, (*key, *groups[key]), strict=True)))


def hour_floor(at: datetime) -> datetime:
    """Return the beginning of the hour of an instant, in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hour_ceil(at: datetime) -> datetime:
    """Return the instant if it begins an hour, else the beginning of the next hour, in UTC."""
    hour = hour_floor(at)
    return hour if hour == at else hour + timedelta(hours=1)
