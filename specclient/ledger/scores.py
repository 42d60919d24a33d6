"""The table ``call_scores``: the scores of answers, given by callers, graders and the judge model.

It holds no text of a call or of a scorer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from specclient.ledger.encoding import ENCODERS, ColumnKind, timestamp
from specclient.ledger.row import COLUMN_NAMES, KEY_COLUMN, ORDER_COLUMN
from specclient.ledger.schema import CALLS_TABLE, SCORES_TABLE
from specclient.ledger.store import Execute, LedgerStore, RowValues, SQLValue
from specclient.types.call import ANSWERING
from specclient.types.call_score import CallScore, ScoreGiver

__all__ = [
    "add_scores",
    "answering_route",
    "create_scores",
    "prune_scores",
    "read_scores",
    "stored_route",
]

_ScoreValues = tuple[str, str, str, str | None, float, float, ScoreGiver, str]

_NAMES = ("id", "call_id", "route", "task", "score", "weight", "giver", "scored_at")
_KINDS: tuple[ColumnKind, ...] = ("text", "text", "text", "text", "measure", "measure", "text", "time")
_COLUMNS = tuple(zip(_NAMES, _KINDS, strict=True))
_ADD = (
    f"INSERT INTO {SCORES_TABLE} ({', '.join(_NAMES)}) VALUES ({', '.join(f':{name}' for name in _NAMES)}) "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
_READ = (
    f"SELECT {', '.join(_NAMES)} FROM {SCORES_TABLE} WHERE scored_at >= :since "  # noqa: S608
    "ORDER BY scored_at DESC LIMIT :most"
)
_PURPOSES = ", ".join(f"'{purpose}'" for purpose in sorted(ANSWERING))
_ANSWERED = f"status = 'ok' AND (purpose IS NULL OR purpose IN ({_PURPOSES}))"
_CALL = f"SELECT route, decision FROM {CALLS_TABLE} WHERE {KEY_COLUMN} = :id AND {_ANSWERED}"  # noqa: S608
_PARTS = (
    f"SELECT route, decision FROM {CALLS_TABLE} WHERE parent = :id AND {ORDER_COLUMN} >= :since "  # noqa: S608
    f"AND {_ANSWERED} ORDER BY {ORDER_COLUMN} DESC LIMIT 1"
)


def create_scores(execute: Execute, types: Mapping[ColumnKind, str]) -> None:
    """Create the table.

    Args:
        types: the database's type for each kind of column.
    """
    columns = [f"{name} {types[kind]}{'' if name == 'task' else ' NOT NULL'}" for name, kind in _COLUMNS]
    execute(f"CREATE TABLE {SCORES_TABLE} ({', '.join(columns)}, PRIMARY KEY (id))")
    execute(f"CREATE INDEX ix_{SCORES_TABLE}_scored_at ON {SCORES_TABLE} (scored_at)")


def add_scores(execute: Execute, scores: Iterable[CallScore]) -> None:
    """Add scores within a transaction; those that are stored already are skipped."""
    for each in scores:
        execute(_ADD, {name: _encoded(getattr(each, name), kind) for name, kind in _COLUMNS})


def read_scores(store: LedgerStore, since: datetime, most: int) -> list[CallScore]:
    """Return the newest scores that were given since an instant, oldest first.

    Args:
        most: the number of scores at most.
    """
    found = store.query(_READ, {"since": timestamp(since), "most": most})
    return [_score(cast("_ScoreValues", values)) for values in found][::-1]


def prune_scores(execute: Execute, before: datetime) -> None:
    """Remove the scores that were given before an instant."""
    execute(f"DELETE FROM {SCORES_TABLE} WHERE scored_at < :before", {"before": timestamp(before)})  # noqa: S608


def stored_route(store: LedgerStore, call_id: str, since: datetime) -> tuple[str, str | None] | None:
    """Return the route that answered a call, and the task of its prompt; None without such a call.

    A call that made several attempts has no row of its own; its last answering part is taken.

    Args:
        since: parts of calls that started before this instant are not searched.
    """
    for sql, params in ((_CALL, {"id": call_id}), (_PARTS, {"id": call_id, "since": timestamp(since)})):
        if found := list(store.query(sql, params)):
            route, decision = found[0]
            return str(route), _task(decision)
    return None


def answering_route(rows: Iterable[RowValues], call_id: str) -> tuple[str, str | None] | None:
    """Return the same as :func:`stored_route` from rows that are not stored yet."""
    found = None
    for values in rows:
        row = dict(zip(COLUMN_NAMES, values, strict=True))
        answers = row["status"] == "ok" and (row["purpose"] or "call") in ANSWERING
        if answers and call_id in (row["id"], row["parent"]):
            found = str(row["route"]), _task(row["decision"])
    return found


def _encoded(value: Any, kind: ColumnKind) -> SQLValue:
    """Return a value as every database can hold it; a row that cannot be written would stop the writer."""
    encode = ENCODERS[kind]
    encoded: SQLValue = value if encode is None or value is None else encode(value)
    return encoded


def _score(values: _ScoreValues) -> CallScore:
    id_, call_id, route, task, score, weight, giver, at = values
    return CallScore(call_id, route, task, score, weight, giver, id_, datetime.fromisoformat(at))


def _task(decision: object) -> str | None:
    values: dict[str, str | None] = json.loads(str(decision or "{}"))
    return values.get("task")
