"""The store of answers in an SQLite file, on the standard library alone.

In WAL mode readers never wait for a writer, and a commit survives the death of the process without an fsync.
A transaction that a killed process has begun leaves nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from specclient.response_cache import tables
from specclient.response_cache.store import CACHE_HINT, CacheStoreError, NewAnswer, StoreContents
from specclient.response_cache.tables import ExecuteSQL
from specclient.runtime.forks import import_lock
from specclient.runtime.sqlite_files import begun, create_file
from specclient.types.cache_options import CacheLimits

__all__ = ["SQLiteAnswers"]

T = TypeVar("T")

#: Seconds that a write waits at most for the locks of other processes.
BUSY_S = 1.0
#: Written into the file's header (``PRAGMA application_id``), to tell it from other programs' databases.
_APPLICATION_ID = 0x5ECC_AC4E


class SQLiteAnswers:
    """The answers in one file; see :class:`~specclient.response_cache.store.AnswerStore`.

    Args:
        path: the file, created readable for its owner only.
        limits: limits on age and size.
        now: returns seconds since the epoch.
    """

    threads = 1

    def __init__(self, path: str, limits: CacheLimits, *, now: Callable[[], float] = time.time) -> None:
        self.name = path
        self._limits, self._now = limits, now
        self._connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Return whether the file exists."""
        return os.path.lexists(self.name)

    def find(self, key: str, oldest_ms: int) -> bytes | None:
        """Return the answer of a key that was made at this time or later; None if there is none."""
        if self._connection is None and not self.exists():
            return None
        # No fork meanwhile: SQLite in the child would believe for ever that the child holds the locks.
        with self._errors("read"), import_lock:
            row = self._opened().execute(tables.FIND, {"key": key, "oldest": oldest_ms}).fetchone()
        return None if row is None else row[0]

    def put(self, answer: NewAnswer, used: Collection[tuple[str, int]] = ()) -> None:
        """Store an answer in one transaction, and keep the limits."""
        self._transact(lambda execute: tables.put(execute, answer, used, self._limits, self._now))

    def remove(self, key: str) -> None:
        """Remove an answer."""
        self._transact(lambda execute: tables.remove(execute, key))

    def claim(self, key: str, holder: str, lease_s: float) -> bool:
        """Claim the call of a key for some seconds; return False if another holder has claimed it."""
        return self._transact(lambda execute: tables.claim(execute, key, holder, lease_s, self._now))

    def release(self, key: str, holder: str) -> None:
        """End a holder's claim."""
        self._transact(lambda execute: tables.release(execute, key, holder))

    def contents(self) -> StoreContents:
        """Return what the file holds."""
        if self._connection is None and not self.exists():
            return StoreContents()
        with self._errors("read"), import_lock:
            return tables.contents(_executing(self._opened()))

    def clear(self) -> int:
        """Remove all answers, and give their space back to the disk; return their number."""
        if self._connection is None and not self.exists():
            return 0
        removed = self._transact(tables.delete_all)
        with self._errors("write"), import_lock:
            connection = self._opened()
            connection.execute("VACUUM").close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return removed

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Drop the connection without closing it; a reference keeps garbage collection from closing it."""
        _inherited.append(self._connection)
        self._connection = None

    def _transact(self, work: Callable[[ExecuteSQL], T]) -> T:
        with self._errors("write"):
            connection = begun(self._opened, BUSY_S)
            try:
                result = work(_executing(connection))
                connection.execute("COMMIT").close()
            except BaseException:
                self.close()  # rolls back
                raise
            finally:
                import_lock.release()
        return result

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        """Connect; create the file, its folder and the tables if they are missing."""
        create_file(self.name)
        connection = sqlite3.connect(self.name, timeout=0.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=NORMAL").close()
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        identity, version = self._versions(connection)
        if (identity, version) == (_APPLICATION_ID, tables.SCHEMA_VERSION):
            return
        names = connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
        if identity != _APPLICATION_ID and names is not None:
            raise CacheStoreError(
                f"cannot use the response cache {self.name}: it is another program's database; {CACHE_HINT}"
            )
        if version > tables.SCHEMA_VERSION:
            raise CacheStoreError(
                f"cannot use the response cache {self.name}: a newer specclient made it (version {version}); "
                f"upgrade specclient, or {CACHE_HINT}"
            )
        connection.execute("PRAGMA journal_mode=WAL").close()  # stored in the file
        connection.execute("BEGIN IMMEDIATE").close()
        if self._versions(connection)[1] == 0:  # another process may have made them meanwhile
            for statement in tables.statements("BLOB"):
                connection.execute(statement).close()
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}").close()
            connection.execute(f"PRAGMA user_version={tables.SCHEMA_VERSION}").close()
        connection.execute("COMMIT").close()

    def _versions(self, connection: sqlite3.Connection) -> tuple[int, int]:
        return (
            connection.execute("PRAGMA application_id").fetchone()[0],
            connection.execute("PRAGMA user_version").fetchone()[0],
        )

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why: object = error.strerror or error
        except sqlite3.Error as error:
            self.close()  # a file that was replaced or repaired is opened anew
            why = error
        else:
            return
        raise CacheStoreError(f"cannot {what} the response cache {self.name}: {why}; {CACHE_HINT}")


def _executing(connection: sqlite3.Connection) -> ExecuteSQL:
    def execute(sql: str, params: Mapping[str, Any] = {}, /) -> list[tuple[Any, ...]]:
        return connection.execute(sql, params).fetchall()

    return execute


_inherited: list[sqlite3.Connection | None] = []
