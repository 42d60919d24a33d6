"""The tables of stored responses and conversations, apart from those of the ledger."""

from __future__ import annotations

from typing import cast

from specclient.errors import LedgerError
from specclient.ledger.store import LEDGER_HINT, Execute

__all__ = ["upgrade"]

#: Holds the number of applied migrations.
_VERSION = "stored_schema"
#: The migrations, each a list of statements. Append to them, but never change them, because existing tables
#: were made with them.
_MIGRATIONS = (
    (
        "CREATE TABLE stored_objects (id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, "
        "changed_ms BIGINT NOT NULL, bytes BIGINT NOT NULL, body TEXT NOT NULL, input TEXT)",
        "CREATE INDEX ix_stored_objects_changed_ms ON stored_objects (changed_ms)",
        "CREATE INDEX ix_stored_objects_owner ON stored_objects (owner, changed_ms)",
        "CREATE TABLE stored_items (conversation TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, "
        "bytes BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (conversation, position))",
        "CREATE UNIQUE INDEX ix_stored_items_id ON stored_items (conversation, id)",
        "CREATE TABLE stored_sizes (owner TEXT NOT NULL PRIMARY KEY, bytes BIGINT NOT NULL)",
    ),
)


def upgrade(execute: Execute, where: str) -> None:
    """Create the tables, or bring them to the newest version, within one transaction.

    Args:
        where: the database, for the error.

    Raises:
        LedgerError: a newer version of this package made the tables.
    """
    execute(f"CREATE TABLE IF NOT EXISTS {_VERSION} (version INTEGER NOT NULL)")
    found = execute(f"SELECT version FROM {_VERSION}")  # noqa: S608
    seen = cast("int", found[0][0]) if found else 0
    if seen > len(_MIGRATIONS):
        raise LedgerError(
            f"the stored responses in {where} have schema version {seen}, this specclient knows up to "
            f"{len(_MIGRATIONS)}; upgrade specclient, or {LEDGER_HINT}"
        )
    if seen == len(_MIGRATIONS):
        return
    for statements in _MIGRATIONS[seen:]:
        for statement in statements:
            execute(statement)
    if not found:
        execute(f"INSERT INTO {_VERSION} VALUES (0)")  # noqa: S608
    execute(f"UPDATE {_VERSION} SET version = {len(_MIGRATIONS)}")  # noqa: S608
