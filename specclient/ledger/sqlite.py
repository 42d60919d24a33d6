"""The SQLite store of the ledger, on the standard library alone.

In WAL mode a commit survives the death of the process without an fsync, and readers never wait for a writer.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from specclient.errors import LedgerError
from specclient.ledger import rollup
from specclient.ledger.encoding import ColumnKind
from specclient.ledger.migrations import upgrade
from specclient.ledger.row import COLUMN_NAMES, KEY_COLUMN
from specclient.ledger.schema import (
    CALLS_TABLE,
    SCHEMA_VERSION,
    VERSION_TABLE,
    checked_version,
    foreign_table_error,
)
from specclient.ledger.scores import add_scores
from specclient.ledger.store import LEDGER_HINT, Execute, RowValues, SQLValue
from specclient.runtime.forks import import_lock
from specclient.runtime.sqlite_files import begun, create_file
from specclient.types.call_score import CallScore

__all__ = ["SQLiteStore"]

T = TypeVar("T")

#: Seconds that a write waits at most for the locks of other processes.
BUSY_S = 5.0

_TYPES: Mapping[ColumnKind, str] = {
    "text": "TEXT",
    "time": "TEXT",
    "json": "TEXT",
    "json_or_null": "TEXT",
    "flag": "BOOLEAN",
    "small": "INTEGER",
    "count": "BIGINT",
    "nano": "BIGINT",
    "measure": "DOUBLE",
}
_INSERT = (
    f"INSERT INTO {CALLS_TABLE} ({', '.join(COLUMN_NAMES)}) VALUES ({', '.join('?' * len(COLUMN_NAMES))})"  # noqa: S608
)
_KNOWN = f"SELECT {KEY_COLUMN} FROM {CALLS_TABLE} WHERE {KEY_COLUMN} IN (SELECT value FROM json_each(?))"  # noqa: S608
_TABLES = (
    f"SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('{CALLS_TABLE}', '{VERSION_TABLE}')"  # noqa: S608
)


class SQLiteStore:
    """A ledger in an SQLite database; see :class:`~specclient.ledger.store.LedgerStore`.

    Args:
        path: a file, created readable for its owner only, or a ``file:`` URI of SQLite.
        sync: whether a commit waits until the data is on the disk, and so survives a loss of power.
    """

    def __init__(self, path: str, *, sync: bool = False) -> None:
        self.name = path
        self._is_uri = path.startswith("file:")
        self._sync = sync
        self._connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Return whether the file exists.

        Raises:
            LedgerError: the file is missing and its folder cannot be created.
        """
        if self._is_uri or os.path.lexists(self.name):
            return True
        folder = next(parent for parent in Path(self.name).absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise LedgerError(
                f"cannot open the ledger {self.name}: {folder} is not a writable folder; {LEDGER_HINT}"
            )
        return False

    def write(self, rows: Sequence[RowValues], scores: Sequence[CallScore] = ()) -> None:
        """Commit all rows and scores or none; those that are stored already are skipped."""
        with self._transaction() as connection:
            new = {row[0]: row for row in rows}
            for (key,) in connection.execute(_KNOWN, [json.dumps(list(new))]):
                del new[key]
            connection.executemany(_INSERT, new.values()).close()
            rollup.add_rows(_executing(connection), new.values())
            add_scores(_executing(connection), scores)

    def transact(self, work: Callable[[Execute], T]) -> T:
        """Run ``work`` in one transaction and return its result; an exception rolls the transaction back."""
        with self._transaction() as connection:
            return work(_executing(connection))

    def query(self, sql: str, params: Mapping[str, SQLValue] = {}) -> Iterator[tuple[SQLValue, ...]]:
        """Yield the rows of a SELECT, without holding all of them."""
        with self._errors("read"), closing(self._connect(BUSY_S)) as connection:
            yield from connection.execute(sql, params)

    def close(self) -> None:
        """Close the connection used for writing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Drop the connection without closing it; a reference keeps garbage collection from closing it."""
        _inherited.append(self._connection)
        self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the database for writing, and commit at the end.

        ``import_lock`` prevents forks meanwhile: SQLite in a child would believe forever that the child
        holds the lock.
        """
        with self._errors("write"):
            connection = self._begun()
            try:
                yield connection
                connection.execute("COMMIT").close()
            except BaseException:
                self.close()  # rolls back
                raise
            finally:
                import_lock.release()

    def _begun(self) -> sqlite3.Connection:
        try:
            return begun(self._opened, BUSY_S)
        except BaseException:
            self.close()
            raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect(0.0)
        return self._connection

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise LedgerError(f"cannot open the ledger {self.name}: {why}; {LEDGER_HINT}") from None
        except sqlite3.Error as error:
            raise LedgerError(f"cannot {what} the ledger {self.name}: {error}; {LEDGER_HINT}") from None

    def _connect(self, busy_s: float) -> sqlite3.Connection:
        """Connect; create the file, its folder and the tables if they are missing."""
        if not self._is_uri:
            create_file(self.name)
        connection = sqlite3.connect(
            self.name, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=self._is_uri
        )
        try:
            connection.execute(f"PRAGMA synchronous={'FULL' if self._sync else 'NORMAL'}").close()
            self._upgrade(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == SCHEMA_VERSION:
            return
        connection.execute("PRAGMA journal_mode=WAL").close()  # stored in the file
        connection.execute("BEGIN IMMEDIATE").close()
        # The version is read again: another process may have upgraded meanwhile.
        upgrade(_executing(connection), self._version(connection), _TYPES)
        connection.execute("COMMIT").close()

    def _version(self, connection: sqlite3.Connection) -> int:
        tables = {name for (name,) in connection.execute(_TABLES)}
        if VERSION_TABLE not in tables:
            if CALLS_TABLE in tables:
                raise foreign_table_error(self.name)
            return 0
        version = connection.execute(f"SELECT version FROM {VERSION_TABLE}").fetchone()  # noqa: S608
        return checked_version(version[0] if version else 0, self.name)


def _executing(connection: sqlite3.Connection) -> Execute:
    def execute(sql: str, params: Mapping[str, SQLValue] = {}, /) -> list[tuple[SQLValue, ...]]:
        return connection.execute(sql, params).fetchall()

    return execute


_inherited: list[sqlite3.Connection | None] = []
