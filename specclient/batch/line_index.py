"""An index of line keys with bounded memory, in a temporary database."""

from __future__ import annotations

import hashlib
import sqlite3

_NEW = "INSERT INTO ids VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class LineIndex:
    """The keys of lines that earlier runs have done, and of lines read by this run.

    SQLite moves data beyond its cache of 2 MB to a temporary file, so a source may be larger than memory.
    Keys are stored as digests of 16 bytes.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("CREATE TABLE ids (key BLOB PRIMARY KEY, done INT, line INT) WITHOUT ROWID")
        self._database.execute("BEGIN")  # never committed, because the data are temporary

    def mark_done(self, key: str) -> bool:
        """Record that an earlier run has done a line; return False if it was recorded already."""
        return self._database.execute(_NEW, (_digest(key), 1, None)).rowcount == 1

    def is_done(self, key: str) -> bool:
        """Return whether an earlier run has done a line."""
        row = self._database.execute("SELECT done FROM ids WHERE key = ?", (_digest(key),)).fetchone()
        return row is not None and bool(row[0])

    def add_line(self, key: str, line: int) -> int | None:
        """Record a line of this run; return the number of an earlier line with the same key, or None."""
        digest = _digest(key)
        row = self._database.execute("SELECT line FROM ids WHERE key = ?", (digest,)).fetchone()
        if row is None:
            self._database.execute(_NEW, (digest, 0, line))
        elif row[0] is None:
            self._database.execute("UPDATE ids SET line = ? WHERE key = ?", (line, digest))
        else:
            return int(row[0])
        return None

    def close(self) -> None:
        """Delete the index."""
        self._database.close()


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
