"""SQLite database files: their creation, and the error of a file that is in use."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

__all__ = ["create_file", "is_busy"]


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


def is_busy(error: BaseException) -> bool:
    """Return whether an error says that another connection uses the database."""
    code = error.sqlite_errorcode if isinstance(error, sqlite3.OperationalError) else 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
