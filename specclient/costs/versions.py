"""Turn a ledger's database of any earlier version, or an empty one, into one of the newest."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.costs import rollup
from specclient.costs.schema import (
    CALLS,
    DIMENSIONS,
    HOURS,
    KEY,
    ORDER,
    SUMS,
    VERSION,
    VERSIONS,
    Column,
    Execute,
    Kind,
)

__all__ = ["upgrade"]

#: The version that brought the sums.
_SUMMED = 3


def upgrade(execute: Execute, seen: int, types: Mapping[Kind, str]) -> None:
    """Lead a database from the version it has seen to the newest, within one transaction.

    Args:
        seen: 0 for an empty database.
        types: what the database calls each kind of column.
    """
    if seen == len(VERSIONS):
        return

    def definition(column: Column) -> str:
        return f"{column.name} {types[column.kind]}{'' if column.null else ' NOT NULL'}"

    if seen == 0:
        columns = [definition(column) for version in VERSIONS for column in version]
        execute(f"CREATE TABLE {VERSION} (version INTEGER NOT NULL)")
        execute(f"CREATE TABLE {CALLS} ({', '.join(columns)}, PRIMARY KEY ({KEY}))")
        execute(f"CREATE INDEX ix_{CALLS}_{ORDER} ON {CALLS} ({ORDER})")
        execute(f"INSERT INTO {VERSION} VALUES (0)")  # noqa: S608
    for version in VERSIONS[seen:] if seen else ():
        for column in version:
            execute(f"ALTER TABLE {CALLS} ADD COLUMN {definition(column)}")
    if seen < _SUMMED:
        keys = [f"{name} {types['text']} NOT NULL" for name in DIMENSIONS]
        sums = [f"{name} {types['count']} NOT NULL" for name in SUMS]
        execute(f"CREATE TABLE {HOURS} ({', '.join((*keys, *sums))}, PRIMARY KEY ({', '.join(DIMENSIONS)}))")
        rollup.rebuild(execute)
    execute(f"UPDATE {VERSION} SET version = {len(VERSIONS)}")  # noqa: S608
