"""Write the ledger of the newest schema version for the tests: tests/data/ledgers/vN.sql.

    python tools/ledger_snapshot.py        # or: make ledger-snapshot

Run it once after adding a column or a figure with a new schema version, and commit the file; the tests open a
ledger of every released version. The calls are those of the version before, migrated. The counts that the new
version adds are 2 in the first call. A version before scores gets one. A file of a released version is never
written again.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import COLUMN_NAMES, COLUMNS, ORDER_COLUMN
from specclient.ledger.schema import CALLS_TABLE, HOURS_TABLE, SCHEMA_VERSION, SCORES_TABLE, VERSION_TABLE
from specclient.ledger.sqlite import SQLiteStore
from specclient.ledger.store import RowValues
from specclient.types.call_score import CallScore

_FIRST = datetime.min.replace(tzinfo=UTC)
_SCORE = CallScore("c1", "openai/gpt-4.1", "code", 0.75, id="s1", scored_at=datetime(2026, 1, 2, tzinfo=UTC))
LEDGERS = Path(__file__).parent.parent / "tests" / "data" / "ledgers"


def snapshot(script: str) -> str:
    """Return the script of a ledger of the newest schema version with the calls of an older one.

    Args:
        script: creates the older ledger, of the version before the newest.
    """
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "old.sqlite3"), Path(folder, "new.sqlite3")
        with closing(sqlite3.connect(old)) as connection:
            connection.executescript(script)
        rows, scores = _migrated(str(old))
        store = SQLiteStore(str(new))
        store.write([_with_new_counts(rows[0]), *rows[1:]], scores or [_SCORE])
        store.close()
        with closing(sqlite3.connect(new)) as connection:
            return "".join(f"{line};\n" for line in _script(connection))


def _migrated(path: str) -> tuple[list[RowValues], list[CallScore]]:
    ledger = Ledger(path)
    sql = f"SELECT {', '.join(COLUMN_NAMES)} FROM {CALLS_TABLE} ORDER BY {ORDER_COLUMN}"
    rows = [tuple(row) for row in ledger.transact(lambda execute: list(execute(sql)))]
    scores = ledger.scores(_FIRST, 1000)
    ledger.close()
    return rows, scores


def _with_new_counts(row: RowValues) -> RowValues:
    return tuple(
        2 if column.since == SCHEMA_VERSION and column.kind == "count" else value
        for column, value in zip(COLUMNS, row, strict=True)
    )


def _script(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that make a database, which PostgreSQL also takes except for the type DOUBLE."""
    created = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    indexes = f"ix_{CALLS_TABLE}_{ORDER_COLUMN}", f"ix_{SCORES_TABLE}_scored_at"
    names = VERSION_TABLE, CALLS_TABLE, indexes[0], HOURS_TABLE, SCORES_TABLE, indexes[1]
    lines = [created.pop(name) for name in names]
    assert not created, f"a new table or index, which is not in the script: {created}"
    for table in (VERSION_TABLE, CALLS_TABLE, HOURS_TABLE, SCORES_TABLE):
        kinds = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
        texts = [
            f"CASE {name} WHEN 1 THEN 'TRUE' WHEN 0 THEN 'FALSE' ELSE 'NULL' END"
            if kind == "BOOLEAN"
            else f"quote({name})"
            for name, kind in kinds
        ]
        found = connection.execute(f"SELECT {', '.join(texts)} FROM {table} ORDER BY rowid")
        lines += [f"INSERT INTO {table} VALUES ({', '.join(values)})" for values in found]
    return lines


def main() -> None:
    """Write the file of the newest version."""
    path = LEDGERS / f"v{SCHEMA_VERSION}.sql"
    if path.exists():
        sys.exit(f"{path} exists; a new column or figure takes since={SCHEMA_VERSION + 1}")
    path.write_text(snapshot(path.with_name(f"v{SCHEMA_VERSION - 1}.sql").read_text()))
    print(f"{path.relative_to(LEDGERS.parents[2])} written")


if __name__ == "__main__":
    main()
