"""SQLite database files: their creation, and the beginning of a transaction on a file that is in use."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from specclient.runtime.forks import import_lock

__all__ = ["begun", "create_file", "is_busy"]

#: Seconds between two attempts to begin a transaction: the first, and the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02


def create_file(path: str) -> None:
    """Create a file, readable for its owner only; SQLite gives its auxiliary files the same mode.

    No effect if it exists.

    Raises:
        OSError: it cannot be created.
    """
    if os.path.lexists(path):
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:  # by another process
        return


def begun(connect: Callable[[], sqlite3.Connection], busy_s: float) -> sqlite3.Connection:
    """Begin a transaction and return the connection, with ``import_lock`` held, but not while waiting.

    Args:
        connect: returns the connection, which does not wait for locks itself.
        busy_s: seconds to wait at most for other connections.

    Raises:
        sqlite3.Error: the transaction cannot begin; ``import_lock`` is free.
    """
    ends, pause_s = time.monotonic() + busy_s, _FIRST_PAUSE_S
    while True:
        import_lock.acquire()
        try:
            connection = connect()
            connection.execute("BEGIN IMMEDIATE").close()
        except BaseException as error:
            import_lock.release()
            if not is_busy(error) or time.monotonic() >= ends:
                raise
        else:
            return connection
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def is_busy(error: BaseException) -> bool:
    """Return whether an error says that another connection uses the database."""
    code = error.sqlite_errorcode if isinstance(error, sqlite3.OperationalError) else 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
