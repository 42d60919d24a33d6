"""The tables of a ledger's database, their columns and the schema version.

The columns follow from :mod:`.row`, :mod:`.figures` and :mod:`.sums`; each is in the tables since the schema
version that added it.
"""

from __future__ import annotations

from specclient.errors import LedgerError
from specclient.ledger.figures import FIGURES
from specclient.ledger.row import COLUMNS
from specclient.ledger.store import LEDGER_HINT

__all__ = [
    "CALLS_TABLE",
    "HOURS_TABLE",
    "SCHEMA_VERSION",
    "SCORES_SINCE",
    "SCORES_TABLE",
    "VERSION_TABLE",
    "checked_version",
    "foreign_table_error",
]

CALLS_TABLE = "calls"
#: The sums of ``calls`` by hour; see :mod:`.rollup`.
HOURS_TABLE = "calls_by_hour"
#: The scores of answers; see :mod:`.scores`. The schema version that added the table.
SCORES_TABLE, SCORES_SINCE = "call_scores", 7
#: Holds the schema version of the database, in one row.
VERSION_TABLE = "specclient_schema"

#: The newest schema version, the one this code reads and writes.
SCHEMA_VERSION = max(*(each.since for each in COLUMNS), *(each.since for each in FIGURES), SCORES_SINCE)


def _check_versions() -> None:
    """Raise ValueError if a ``since`` is impossible; the snapshots in the tests check the possible ones."""
    versions = {each.since for each in COLUMNS} | {each.since for each in FIGURES} | {SCORES_SINCE}
    if missing := sorted(set(range(1, SCHEMA_VERSION)) - versions):
        raise ValueError(f"no column, figure or table has since={missing[0]}; schema versions have no gaps")
    since = {each.name: each.since for each in COLUMNS}
    for figure in FIGURES:
        for name in figure.columns:
            if since[name] > figure.since:
                raise ValueError(
                    f"the figure {figure.name!r} has since={figure.since}, but its column {name!r} was added "
                    f"by version {since[name]}; a new figure takes the next schema version"
                )


_check_versions()


def checked_version(version: int, where: str) -> int:
    """Return the schema version of a database if this code knows it.

    Raises:
        LedgerError: a newer version of this package created the database.
    """
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"the ledger {where} has schema version {version}, this specclient knows up to {SCHEMA_VERSION}; "
            f"upgrade specclient, or {LEDGER_HINT}"
        )
    return version


def foreign_table_error(where: str) -> LedgerError:
    """Return the error for a database whose table of our name was created by another program."""
    return LedgerError(
        f"cannot open the ledger {where}: its table {CALLS_TABLE!r} is another program's; {LEDGER_HINT}"
    )
