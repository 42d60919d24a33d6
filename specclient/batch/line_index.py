"""Turn the ids of any number of lines into answers about them, in little memory: a private file on disk."""

from __future__ import annotations

import hashlib
import sqlite3

_NEW = "INSERT INTO ids VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class LineIndex:
    """The keys of lines that are done, and of those that were read in this run.

    SQLite keeps what outgrows its cache of 2 MB in a temporary file, so that a file of lines may be larger
    than memory. Keys are kept as digests of 16 bytes.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("CREATE TABLE ids (key BLOB PRIMARY KEY, done INT, line INT) WITHOUT ROWID")
        self._database.execute("BEGIN")  # never ended: nothing here is to survive

    def settle(self, key: str) -> bool:
        """Note that a line is done, by an earlier run; tell whether that is news."""
        return self._database.execute(_NEW, (_digest(key), 1, None)).rowcount == 1

    def is_done(self, key: str) -> bool:
        """Tell whether a line was done by an earlier run."""
        row = self._database.execute("SELECT done FROM ids WHERE key = ?", (_digest(key),)).fetchone()
        return row is not None and bool(row[0])

    def meet(self, key: str, line: int) -> int | None:
        """Note a line of this run; return the number of an earlier one with its key, None where none has."""
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
        """Let go of the file."""
        self._database.close()


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
