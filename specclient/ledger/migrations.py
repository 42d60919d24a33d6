"""Turn a ledger's database of any earlier version, or an empty one, into one of the newest."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.ledger import rollup
from specclient.ledger.schema import (
    CALLS_TABLE,
    DIMENSIONS,
    HOURS_TABLE,
    KEY_COLUMN,
    ORDER_COLUMN,
    SUM_NAMES,
    VERSION_TABLE,
    VERSIONS,
    ColumnKind,
    Execute,
    LedgerColumn,
)

__all__ = ["upgrade"]

#: The version that brought the sums.
_SUMMED = 3


def upgrade(execute: Execute, seen: int, types: Mapping[ColumnKind, str]) -> None:
    """Lead a database from the version it has seen to the newest, within one transaction.

    Args:
        seen: 0 for an empty database.
        types: what the database calls each kind of column.
    """
    if seen == len(VERSIONS):
        return

    def definition(column: LedgerColumn) -> str:
        return f"{column.name} {types[column.kind]}{'' if column.null else ' NOT NULL'}"

    if seen == 0:
        columns = [definition(column) for version in VERSIONS for column in version]
        execute(f"CREATE TABLE {VERSION_TABLE} (version INTEGER NOT NULL)")
        execute(f"CREATE TABLE {CALLS_TABLE} ({', '.join(columns)}, PRIMARY KEY ({KEY_COLUMN}))")
        execute(f"CREATE INDEX ix_{CALLS_TABLE}_{ORDER_COLUMN} ON {CALLS_TABLE} ({ORDER_COLUMN})")
        execute(f"INSERT INTO {VERSION_TABLE} VALUES (0)")  # noqa: S608
    for version in VERSIONS[seen:] if seen else ():
        for column in version:
            execute(f"ALTER TABLE {CALLS_TABLE} ADD COLUMN {definition(column)}")
    if seen < _SUMMED:
        keys = [f"{name} {types['text']} NOT NULL" for name in DIMENSIONS]
        sums = [f"{name} {types['count']} NOT NULL" for name in SUM_NAMES]
        execute(
            f"CREATE TABLE {HOURS_TABLE} ({', '.join((*keys, *sums))}, PRIMARY KEY ({', '.join(DIMENSIONS)}))"
        )
        rollup.rebuild(execute)
    execute(f"UPDATE {VERSION_TABLE} SET version = {len(VERSIONS)}")  # noqa: S608
