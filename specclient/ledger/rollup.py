"""Turn rows of calls into sums by hour that stand beside them; :mod:`specclient.ledger.totals` reads them.

Every transaction that adds or removes rows brings the sums along, so the two agree at every moment; all sums
are whole numbers, so they agree exactly. Hours are UTC's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import add, itemgetter
from typing import Any

from specclient.ledger.schema import (
    CALLS_TABLE,
    COLUMN_NAMES,
    DIMENSIONS,
    HOURS_TABLE,
    LATENCY_CLASSES,
    ORDER_COLUMN,
    SUM_NAMES,
    Execute,
    RowValues,
    SQLValue,
)

__all__ = ["EDGES_S", "add_rows", "prune", "rebuild"]

#: Upper edges of the latencies' classes, in seconds; the last class has none. Each is √2 times the last.
EDGES_S = tuple(0.001 * 2 ** (k / 2) for k in range(LATENCY_CLASSES - 1))
_EDGES_US = [round(edge * 1e6) for edge in EDGES_S]
#: The longest time that is told from longer ones, which no call takes: eleven days.
_LONGEST_US = 10**12

GroupKey = tuple[str, ...]

_NEEDED = (
    ORDER_COLUMN, "operation", "provider", "model", "served_model", "route", "status", "error", "streamed",
    "purpose", "strategy", "pair", "method", "parent", "prompt_tokens", "completion_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "predicted_accepted", "predicted_rejected", "drafted",
    "accepted", "steps", "cost_nano", "cost_estimated", "usage_estimated", "attempts", "latency_s",
    "engine_s", "ttft_s",
)  # fmt: skip
needed_values = itemgetter(*map(COLUMN_NAMES.index, _NEEDED))

SELECT_NEEDED = (
    f"SELECT {', '.join(_NEEDED)} FROM {CALLS_TABLE} "  # noqa: S608
    f"WHERE {ORDER_COLUMN} >= :since AND {ORDER_COLUMN} < :until"
)
_ADD = f"""INSERT INTO {HOURS_TABLE} ({", ".join((*DIMENSIONS, *SUM_NAMES))})
    VALUES ({", ".join(f":{name}" for name in (*DIMENSIONS, *SUM_NAMES))})
    ON CONFLICT ({", ".join(DIMENSIONS)})
    DO UPDATE SET {", ".join(f"{name} = {HOURS_TABLE}.{name} + excluded.{name}" for name in SUM_NAMES)}"""  # noqa: S608


def add_rows(execute: Execute, rows: Iterable[RowValues]) -> None:
    """Add rows, new in this transaction, to the sums."""
    _store(execute, sum_rows(map(needed_values, rows)))


def rebuild(execute: Execute, hour: str | None = None) -> None:
    """Make the sums of an hour anew from its rows, or those of all hours that there are."""
    if hour is None:
        execute(f"DELETE FROM {HOURS_TABLE}")  # noqa: S608
        for (found,) in execute(f"SELECT DISTINCT substr({ORDER_COLUMN}, 1, 13) FROM {CALLS_TABLE}"):  # noqa: S608
            rebuild(execute, hour_of(str(found)))
        return
    begins = datetime.fromisoformat(hour).replace(tzinfo=UTC)
    execute(f"DELETE FROM {HOURS_TABLE} WHERE hour = :hour", {"hour": hour})  # noqa: S608
    bounds = {"since": text_of(begins), "until": text_of(begins + timedelta(hours=1))}
    _store(execute, sum_rows(execute(SELECT_NEEDED, bounds)))


def prune(execute: Execute, before: datetime) -> int:
    """Remove the rows that started before an instant, and their sums; returns how many those were."""
    bound = {"before": text_of(before)}
    ((found,),) = execute(f"SELECT COUNT(*) FROM {CALLS_TABLE} WHERE {ORDER_COLUMN} < :before", bound)  # noqa: S608
    execute(f"DELETE FROM {CALLS_TABLE} WHERE {ORDER_COLUMN} < :before", bound)  # noqa: S608
    hour = hour_of(bound["before"])
    execute(f"DELETE FROM {HOURS_TABLE} WHERE hour < :hour", {"hour": hour})  # noqa: S608
    if before != hour_floor(before):
        rebuild(execute, hour)
    return int(found or 0)


def merge_sums(groups: dict[GroupKey, list[int]], more: Iterable[tuple[GroupKey, list[int]]]) -> None:
    for key, sums in more:
        known = groups.get(key)
        groups[key] = sums if known is None else list(map(add, known, sums))


def _store(execute: Execute, groups: dict[GroupKey, list[int]]) -> None:
    for key in sorted(groups):  # in one order, or two writers could wait for each other
        execute(_ADD, dict(zip((*DIMENSIONS, *SUM_NAMES), (*key, *groups[key]), strict=True)))


def sum_rows(rows: Iterable[Sequence[SQLValue]]) -> dict[GroupKey, list[int]]:
    """Return the sums of rows, of which the needed columns are given, by all dimensions."""
    groups: dict[GroupKey, list[int]] = {}
    for row in rows:
        key, figures, latency = _figures(row)
        sums = groups.get(key)
        if sums is None:
            sums = groups[key] = [0] * len(SUM_NAMES)
        for k, figure in enumerate(figures):
            if figure:
                sums[k] += figure
        if latency is not None:
            sums[len(figures) + latency] += 1
    return groups


def _figures(row: Sequence[Any]) -> tuple[GroupKey, tuple[int | None, ...], int | None]:
    """Return what a row adds: its key, its figures in the order of ``SUM_NAMES``, its latency's class if
    any."""
    (
        started, operation, provider, model, served, route, status, error, streamed, purpose,
        strategy, pair, method, parent, tokens_in, tokens_out, cached,
        written, reasoning, predicted_accepted, predicted_rejected, drafted, accepted,
        steps, cost, cost_estimated, usage_estimated, attempts, latency_s, engine_s, ttft_s,
    ) = row  # fmt: skip
    key = (
        hour_of(started), operation, provider, model, served or "", route, status, error or "",
        "true" if streamed else "false", purpose or "call", strategy or "", pair or "", method or "",
    )  # fmt: skip
    latency = _us(latency_s)
    engine = _us(engine_s)
    served_us = latency if engine_s is None else engine
    timed = bool(tokens_out) and served_us > 0
    known = accepted is not None and drafted is not None
    passed = accepted is not None and bool(steps)
    succeeded = status == "ok"
    unpriced = cost is None
    figures = (
        1,
        parent is not None,
        status == "error",
        tokens_in,
        tokens_out,
        cached,
        written,
        reasoning,
        predicted_accepted,
        predicted_rejected,
        known,
        drafted if known else 0,
        accepted if known else 0,
        accepted if passed else 0,
        steps if passed else 0,
        cost,
        not unpriced and (cost_estimated or usage_estimated),
        unpriced,
        unpriced and status == "error" and tokens_in is None and tokens_out is None,
        attempts,
        latency if succeeded else 0,
        engine,
        _us(ttft_s),
        ttft_s is not None,
        tokens_out if timed else 0,
        served_us if timed else 0,
    )
    return key, figures, bisect_left(_EDGES_US, latency) if succeeded else None


def _us(seconds: float | None) -> int:
    return 0 if seconds is None else round(min(max(seconds, 0.0) * 1e6, _LONGEST_US))


def text_of(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def hour_of(timestamp: str) -> str:
    """Return the hour of a time as text, as the sums call it."""
    return f"{timestamp[:10]} {timestamp[11:13]}:00"


def hour_floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hour_ceil(at: datetime) -> datetime:
    hour = hour_floor(at)
    return hour if hour == at else hour + timedelta(hours=1)
