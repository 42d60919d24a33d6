"""Migrations: bring a ledger's database of any earlier schema version, or an empty one, to the newest.

Each version has one small step, and a step only creates what belongs to its version: the columns whose
``since`` is that version. So the steps of old versions never change when a column or figure is added. A
version without a function in :data:`MIGRATIONS` adds its columns and nothing else.

Columns are added as nullable to ``calls``, and with a default of 0 to ``calls_by_hour``. Both databases do
that without rewriting rows, and an older program that has the database open can go on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specclient.ledger import rollup
from specclient.ledger.encoding import ColumnKind
from specclient.ledger.figures import FIGURES
from specclient.ledger.row import COLUMNS, KEY_COLUMN, ORDER_COLUMN
from specclient.ledger.schema import CALLS_TABLE, HOURS_TABLE, SCHEMA_VERSION, SCORES_SINCE, VERSION_TABLE
from specclient.ledger.scores import create_scores
from specclient.ledger.store import Execute
from specclient.ledger.sums import DIMENSION_NAMES

__all__ = ["MIGRATIONS", "Migration", "Step", "upgrade"]

#: The version that added ``calls_by_hour``.
_HOURS_SINCE = 3


@dataclass(frozen=True, slots=True)
class Step:
    """The context of a migration step.

    Attributes:
        execute: runs a statement in the transaction of the upgrade.
        types: the database's type for each kind of column.
        version: the version that the step leads to.
    """

    execute: Execute
    types: Mapping[ColumnKind, str]
    version: int

    def call_columns(self) -> list[str]:
        """Return the definitions of the columns that the version adds to ``calls``."""
        return [
            f"{each.name} {self.types[each.kind]}{'' if each.null else ' NOT NULL'}"
            for each in COLUMNS
            if each.since == self.version
        ]

    def sum_columns(self) -> list[str]:
        """Return the definitions of the columns that the version adds to ``calls_by_hour``."""
        return [
            f"{name} {self.types['count']} NOT NULL DEFAULT 0"
            for figure in FIGURES
            if figure.since == self.version
            for name in figure.sum_names
        ]


Migration = Callable[[Step], None]


def _create_calls(step: Step) -> None:
    step.execute(f"CREATE TABLE {VERSION_TABLE} (version INTEGER NOT NULL)")
    step.execute(f"INSERT INTO {VERSION_TABLE} VALUES (0)")  # noqa: S608
    definitions = ", ".join((*step.call_columns(), f"PRIMARY KEY ({KEY_COLUMN})"))
    step.execute(f"CREATE TABLE {CALLS_TABLE} ({definitions})")
    step.execute(f"CREATE INDEX ix_{CALLS_TABLE}_{ORDER_COLUMN} ON {CALLS_TABLE} ({ORDER_COLUMN})")


def _create_hours(step: Step) -> None:
    keys = [f"{name} {step.types['text']} NOT NULL" for name in DIMENSION_NAMES]
    primary = f"PRIMARY KEY ({', '.join(DIMENSION_NAMES)})"
    step.execute(f"CREATE TABLE {HOURS_TABLE} ({', '.join((*keys, *step.sum_columns(), primary))})")


def _add_columns(step: Step) -> None:
    for definition in step.call_columns():
        step.execute(f"ALTER TABLE {CALLS_TABLE} ADD COLUMN {definition}")
    for definition in step.sum_columns():
        step.execute(f"ALTER TABLE {HOURS_TABLE} ADD COLUMN {definition}")


def _add_scores(step: Step) -> None:
    create_scores(step.execute, step.types)
    _add_columns(step)


#: By version, the step from the version before.
MIGRATIONS: Mapping[int, Migration] = {
    1: _create_calls,
    2: _add_columns,
    _HOURS_SINCE: _create_hours,
    SCORES_SINCE: _add_scores,
}


def upgrade(execute: Execute, version: int, types: Mapping[ColumnKind, str]) -> None:
    """Bring a database to the newest version, within one transaction that excludes other writers.

    Args:
        version: of the database; 0 if it is empty.
        types: the database's type for each kind of column.
    """
    for newer in range(version + 1, SCHEMA_VERSION + 1):
        MIGRATIONS.get(newer, _add_columns)(Step(execute, types, newer))
        execute(f"UPDATE {VERSION_TABLE} SET version = {newer}")  # noqa: S608
    if _has_unknown_sums(version):
        rollup.rebuild(execute)  # after all steps, as it writes all columns


def _has_unknown_sums(version: int) -> bool:
    """Return whether rows of a version may add to a figure that is newer than the version.

    A figure over new columns alone is 0 for the rows that are there, which is the default.
    """
    known = {each.name for each in COLUMNS if each.since <= version}
    return any(figure.since > version and not known.isdisjoint(figure.columns) for figure in FIGURES)
