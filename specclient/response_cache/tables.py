"""The tables of answers in a database, and the statements that SQLite and PostgreSQL share.

The functions run within a transaction that excludes other writers. ``execute`` runs one statement, with
parameters written as ``:name``, and returns its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, cast

from specclient.response_cache.store import NewAnswer, StoreContents
from specclient.types.cache_options import CacheLimits

__all__ = [
    "ANSWERS_TABLE",
    "FIND",
    "SCHEMA_VERSION",
    "ExecuteSQL",
    "claim",
    "contents",
    "delete_all",
    "put",
    "release",
    "remove",
    "statements",
]

ANSWERS_TABLE = "cached_answers"
_TOTALS = "cached_answers_total"
_CLAIMS = "cached_claims"
#: The version of the tables. A database with another one is not used.
SCHEMA_VERSION = 1

FIND = f"SELECT body FROM {ANSWERS_TABLE} WHERE key = :key AND made_ms >= :oldest"  # noqa: S608
#: Answers that are looked up at once.
_PAGE = 100


class ExecuteSQL(Protocol):
    """Runs one statement in a transaction."""

    def __call__(self, sql: str, params: Mapping[str, Any] = {}, /) -> list[tuple[Any, ...]]:
        """Return the rows of the result."""
        ...


def statements(blob: str) -> list[str]:
    """Return the statements that create the tables.

    Args:
        blob: the database's type for bytes.
    """
    return [
        f"CREATE TABLE {ANSWERS_TABLE} (key TEXT NOT NULL PRIMARY KEY, made_ms BIGINT NOT NULL, "
        f"used_ms BIGINT NOT NULL, bytes BIGINT NOT NULL, body {blob} NOT NULL)",
        f"CREATE INDEX ix_{ANSWERS_TABLE}_made_ms ON {ANSWERS_TABLE} (made_ms)",
        f"CREATE INDEX ix_{ANSWERS_TABLE}_used_ms ON {ANSWERS_TABLE} (used_ms)",
        f"CREATE TABLE {_TOTALS} (version INTEGER NOT NULL, entries BIGINT NOT NULL, bytes BIGINT NOT NULL)",
        f"INSERT INTO {_TOTALS} VALUES ({SCHEMA_VERSION}, 0, 0)",  # noqa: S608
        f"CREATE TABLE {_CLAIMS} (key TEXT NOT NULL PRIMARY KEY, holder TEXT NOT NULL, "
        "until_ms BIGINT NOT NULL)",
    ]


def put(
    execute: ExecuteSQL,
    answer: NewAnswer,
    used: Collection[tuple[str, int]],
    limits: CacheLimits,
    now: Callable[[], float] = time.time,
) -> None:
    """Store an answer, and keep the limits; see :meth:`specclient.response_cache.store.AnswerStore.put`."""
    now_ms = int(now() * 1000)
    # First the sums: PostgreSQL locks their only row, so that no two writers run at once.
    _add(execute, 0, 0)
    for key, used_ms in used:
        execute(
            f"UPDATE {ANSWERS_TABLE} SET used_ms = :used WHERE key = :key AND used_ms < :used",  # noqa: S608
            {"key": key, "used": used_ms},
        )
    remove(execute, answer.key)
    execute(
        f"INSERT INTO {ANSWERS_TABLE} VALUES (:key, :made, :used, :bytes, :body)",  # noqa: S608
        {
            "key": answer.key,
            "made": answer.made_ms,
            "used": now_ms,
            "bytes": len(answer.body),
            "body": answer.body,
        },
    )
    _add(execute, 1, len(answer.body))
    execute(f"DELETE FROM {_CLAIMS} WHERE key = :key", {"key": answer.key})  # noqa: S608
    _remove_where(execute, "made_ms < :oldest", {"oldest": now_ms - limits.max_age_ms})
    _make_room(execute, answer.key, limits)


def remove(execute: ExecuteSQL, key: str) -> None:
    """Remove an answer."""
    _remove_where(execute, "key = :key", {"key": key})


def claim(
    execute: ExecuteSQL, key: str, holder: str, lease_s: float, now: Callable[[], float] = time.time
) -> bool:
    """Claim the call of a key; see :meth:`specclient.response_cache.store.AnswerStore.claim`."""
    now_ms = int(now() * 1000)
    execute(f"DELETE FROM {_CLAIMS} WHERE until_ms < :now", {"now": now_ms})  # noqa: S608
    sql = (
        f"INSERT INTO {_CLAIMS} VALUES (:key, :holder, :until) ON CONFLICT (key) "  # noqa: S608
        f"DO UPDATE SET until_ms = :until WHERE {_CLAIMS}.holder = :holder RETURNING holder"
    )
    return bool(execute(sql, {"key": key, "holder": holder, "until": now_ms + int(lease_s * 1000)}))


def release(execute: ExecuteSQL, key: str, holder: str) -> None:
    """End a holder's claim."""
    execute(
        f"DELETE FROM {_CLAIMS} WHERE key = :key AND holder = :holder",  # noqa: S608
        {"key": key, "holder": holder},
    )


def contents(execute: ExecuteSQL) -> StoreContents:
    """Return what the tables hold."""
    ((entries, size),) = execute(f"SELECT entries, bytes FROM {_TOTALS}")  # noqa: S608
    ((oldest, newest),) = execute(f"SELECT MIN(made_ms), MAX(made_ms) FROM {ANSWERS_TABLE}")  # noqa: S608
    return StoreContents(entries=entries, bytes=size, oldest_ms=oldest, newest_ms=newest)


def delete_all(execute: ExecuteSQL) -> int:
    """Remove all answers; return their number."""
    _add(execute, 0, 0)  # as in `put`
    ((entries,),) = execute(f"SELECT COUNT(*) FROM {ANSWERS_TABLE}")  # noqa: S608
    execute(f"DELETE FROM {ANSWERS_TABLE}")  # noqa: S608
    execute(f"UPDATE {_TOTALS} SET entries = 0, bytes = 0")  # noqa: S608
    return cast("int", entries)


def _make_room(execute: ExecuteSQL, kept: str, limits: CacheLimits) -> None:
    """Remove the least recently used answers beyond the limits, but not the one that was just stored."""
    sql = (
        f"SELECT key, bytes FROM {ANSWERS_TABLE} WHERE key <> :kept "  # noqa: S608
        "ORDER BY used_ms, key LIMIT :page"
    )
    while True:
        ((entries, size),) = execute(f"SELECT entries, bytes FROM {_TOTALS}")  # noqa: S608
        if entries <= limits.max_entries and size <= limits.max_bytes:
            return
        page = execute(sql, {"kept": kept, "page": _PAGE})
        if not page:
            return
        for key, of_one in page:
            if entries <= limits.max_entries and size <= limits.max_bytes:
                return
            remove(execute, str(key))
            entries, size = entries - 1, size - of_one


def _remove_where(execute: ExecuteSQL, condition: str, params: Mapping[str, Any]) -> None:
    """Remove the answers for which a condition holds, and subtract them from the sums."""
    found = execute(
        f"DELETE FROM {ANSWERS_TABLE} WHERE {condition} RETURNING bytes",  # noqa: S608
        params,
    )
    if found:
        _add(execute, -len(found), -sum(size for (size,) in found))


def _add(execute: ExecuteSQL, entries: int, size: int) -> None:
    execute(
        f"UPDATE {_TOTALS} SET entries = entries + :entries, bytes = bytes + :bytes",  # noqa: S608
        {"entries": entries, "bytes": size},
    )
