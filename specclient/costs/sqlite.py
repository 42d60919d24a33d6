"""Turn rows of calls into an SQLite file and back, with the standard library alone.

The default ledger, so on the path of every call: a batch is one transaction of a prepared statement. In WAL
mode a commit survives the death of the process without an fsync, and readers never wait for the writer.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from specclient.costs.schema import (
    CALLS,
    KEY,
    NAMES,
    ORDER,
    VERSION,
    VERSIONS,
    WAY_OUT,
    Column,
    Values,
    checked,
    foreign,
)
from specclient.errors import LedgerError
from specclient.forks import uncut

__all__ = ["SQLite"]

#: Seconds one connection waits for another's lock; shorter than a call waits for its record.
BUSY_S = 1.5

_TYPES = {"text": "TEXT", "flag": "BOOLEAN", "small": "INTEGER", "count": "BIGINT", "measure": "DOUBLE"}
_INSERT = f"""INSERT INTO {CALLS} ({", ".join(NAMES)}) VALUES ({", ".join("?" * len(NAMES))})
    ON CONFLICT DO NOTHING"""  # noqa: S608 - made of the names above
_SELECT = f"""SELECT {", ".join(NAMES)} FROM {CALLS}
    WHERE {ORDER} >= ? AND {ORDER} < ? ORDER BY {ORDER} DESC LIMIT ?"""  # noqa: S608
#: Stand before and behind every time as text, and for all rows.
_FIRST, _LAST, _ALL = "", "~", -1
_TABLES = f"SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('{CALLS}', '{VERSION}')"  # noqa: S608


class SQLite:
    """The calls in one SQLite database; see :class:`~specclient.costs.schema.Store`.

    Args:
        path: of the file, made for its owner's eyes only; or one of SQLite's own ``file:`` URIs.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._is_uri = path.startswith("file:")
        self._connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Tell whether the file is there.

        Raises:
            LedgerError: it is missing, and its folder could not be made either.
        """
        if self._is_uri or os.path.lexists(self.name):
            return True
        folder = next(parent for parent in Path(self.name).absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise LedgerError(
                f"cannot open the ledger {self.name}: {folder} is no folder to write in; {WAY_OUT}"
            )
        return False

    def write(self, rows: Sequence[Values]) -> None:
        """Commit all rows or none; a row whose key is there already stays as it is."""
        # No fork amid a transaction: a child's SQLite would think for ever that its process holds the lock.
        with uncut:
            self._write(rows)

    def _write(self, rows: Sequence[Values]) -> None:
        connection = self._connection = self._connection or self._open()
        try:
            if len(rows) == 1:
                connection.execute(_INSERT, rows[0]).close()  # a transaction by itself
                return
            connection.execute("BEGIN IMMEDIATE").close()
            connection.executemany(_INSERT, rows).close()
            connection.execute("COMMIT").close()
        except sqlite3.Error as error:
            self.close()  # rolls back
            raise LedgerError(f"cannot write the ledger {self.name}: {error}; {WAY_OUT}") from None

    def read(self, since: str | None, until: str | None, limit: int | None) -> list[Values]:
        """Return the newest ``limit`` calls that started in ``[since, until)``, newest first."""
        with closing(self._open()) as connection:
            try:
                bounds = (since or _FIRST, until or _LAST, _ALL if limit is None else limit)
                return connection.execute(_SELECT, bounds).fetchall()
            except sqlite3.Error as error:
                raise LedgerError(f"cannot read the ledger {self.name}: {error}; {WAY_OUT}") from None

    def close(self) -> None:
        """Close the connection that writes."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Forget that connection; it stays referenced, as even to collect it would close it."""
        _inherited.append(self._connection)
        self._connection = None

    def _open(self) -> sqlite3.Connection:
        """Connect, and create file, folder and tables where they are missing."""
        try:
            if not self._is_uri:
                _create_file(self.name)
            connection = sqlite3.connect(
                self.name, BUSY_S, isolation_level=None, check_same_thread=False, uri=self._is_uri
            )
            try:
                connection.execute("PRAGMA synchronous=NORMAL").close()
                self._upgrade(connection)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            why = error.strerror or error
            raise LedgerError(f"cannot open the ledger {self.name}: {why}; {WAY_OUT}") from None
        except sqlite3.Error as error:
            raise LedgerError(f"cannot open the ledger {self.name}: {error}; {WAY_OUT}") from None
        return connection

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        if self._seen(connection) == len(VERSIONS):
            return
        connection.execute("PRAGMA journal_mode=WAL").close()  # kept in the file
        connection.execute("BEGIN IMMEDIATE").close()
        for statement in upgrade(self._seen(connection), VERSIONS):  # another process may have been first
            connection.execute(statement).close()
        connection.execute("COMMIT").close()

    def _seen(self, connection: sqlite3.Connection) -> int:
        tables = {name for (name,) in connection.execute(_TABLES)}
        if VERSION not in tables:
            if CALLS in tables:
                raise foreign(self.name)
            return 0
        version = connection.execute(f"SELECT version FROM {VERSION}").fetchone()  # noqa: S608
        return checked(version[0] if version else 0, self.name)


def upgrade(seen: int, versions: Sequence[Sequence[Column]]) -> list[str]:
    """Return the statements that lead from the version a database has seen to the newest."""
    if seen == len(versions):
        return []
    statements = []
    if seen == 0:
        columns = [_definition(column) for version in versions for column in version]
        statements = [
            f"CREATE TABLE {VERSION} (version INTEGER NOT NULL)",
            f"CREATE TABLE {CALLS} ({', '.join(columns)}, PRIMARY KEY ({KEY}))",
            f"CREATE INDEX ix_{CALLS}_{ORDER} ON {CALLS} ({ORDER})",
            f"INSERT INTO {VERSION} VALUES (0)",  # noqa: S608
        ]
    else:
        added = [column for version in versions[seen:] for column in version]
        statements = [f"ALTER TABLE {CALLS} ADD COLUMN {_definition(column)}" for column in added]
    return [*statements, f"UPDATE {VERSION} SET version = {len(versions)}"]  # noqa: S608


def _definition(column: Column) -> str:
    return f"{column.name} {_TYPES[column.kind]}{'' if column.null else ' NOT NULL'}"


def _create_file(path: str) -> None:
    """Create the file for its owner's eyes only; SQLite gives its side files the same mode."""
    if os.path.lexists(path):
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return


_inherited: list[sqlite3.Connection | None] = []
