"""Turn rows of calls into sums by hour that stand beside them, and those sums into totals over any time.

Every transaction that adds or removes rows brings the sums along, so the two agree at every moment; all sums
are whole numbers, so they agree exactly. Hours are UTC's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import add, itemgetter
from typing import Any

from specclient.costs.schema import (
    CALLS,
    DIMENSIONS,
    HOURS,
    LATENCIES,
    NAMES,
    ORDER,
    SUMS,
    Execute,
    Store,
    Value,
    Values,
)
from specclient.errors import ConfigurationError

__all__ = ["EDGES_S", "GROUPS", "Sums", "add_rows", "prune", "rebuild", "totals"]

#: Upper edges of the latencies' classes, in seconds; the last class has none. Each is √2 times the last.
EDGES_S = tuple(0.001 * 2 ** (k / 2) for k in range(LATENCIES - 1))
_EDGES_US = [round(edge * 1e6) for edge in EDGES_S]
#: The longest time that is told from longer ones, which no call takes: eleven days.
_LONGEST_US = 10**12

#: Longer spans of time are what hours begin with, so many letters of them.
_SPANS = {"day": 10, "month": 7}
#: Names to group by, with the SQL that reads them of a sum.
GROUPS = {name: name for name in DIMENSIONS} | {
    name: f"substr(hour, 1, {length})" for name, length in _SPANS.items()
}

Key = tuple[str, ...]

_NEEDED = (
    ORDER, "operation", "provider", "model", "served_model", "route", "status", "error", "streamed",
    "purpose", "strategy", "pair", "method", "parent", "prompt_tokens", "completion_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "predicted_accepted", "predicted_rejected", "drafted",
    "accepted", "steps", "cost_nano", "cost_estimated", "usage_estimated", "attempts", "latency_s",
    "engine_s", "ttft_s",
)  # fmt: skip
_needed_of = itemgetter(*map(NAMES.index, _NEEDED))

_ROWS = f"SELECT {', '.join(_NEEDED)} FROM {CALLS} WHERE {ORDER} >= :since AND {ORDER} < :until"  # noqa: S608
_ADD = f"""INSERT INTO {HOURS} ({", ".join((*DIMENSIONS, *SUMS))})
    VALUES ({", ".join(f":{name}" for name in (*DIMENSIONS, *SUMS))})
    ON CONFLICT ({", ".join(DIMENSIONS)})
    DO UPDATE SET {", ".join(f"{name} = {HOURS}.{name} + excluded.{name}" for name in SUMS)}"""  # noqa: S608
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a group of rows.

    Attributes:
        group: the group's values, in the order that was asked for; "" where its rows have none.
        calls: rows, one a billed attempt; ``parts`` of them are part of another call.
        errors: of status ``error``.
        tokens_in, tokens_out, tokens_cached, tokens_written, tokens_reasoning, predicted_accepted,
            predicted_rejected: over the rows that know them.
        drafts: rows that know what was both drafted and accepted; ``drafted`` and ``accepted`` are theirs.
        kept, passes: accepted tokens and verification passes of the rows that know both.
        cost_nano: nano-dollars of the priced rows; ``estimated`` of them hold an estimate.
        unpriced: rows of unknown cost; ``unanswered`` of them failed before anything was counted.
        attempts: tries, those of no bill included.
        latency_us: microseconds of the rows of status ``ok``; ``latencies`` are their numbers by class, see
            :data:`EDGES_S`.
        engine_us: microseconds of the local engine.
        ttft_us: microseconds to the first text, of the ``ttfts`` rows that know it.
        timed_tokens, timed_us: generated tokens and the microseconds that they took, the engine's where it
            told them, of the rows that know both.
    """

    group: Key
    calls: int
    parts: int
    errors: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    tokens_written: int
    tokens_reasoning: int
    predicted_accepted: int
    predicted_rejected: int
    drafts: int
    drafted: int
    accepted: int
    kept: int
    passes: int
    cost_nano: int
    estimated: int
    unpriced: int
    unanswered: int
    attempts: int
    latency_us: int
    engine_us: int
    ttft_us: int
    ttfts: int
    timed_tokens: int
    timed_us: int
    latencies: tuple[int, ...]

    @classmethod
    def of(cls, group: Key, sums: Sequence[int]) -> Sums:
        """Return the sums of a group, given in the order of ``SUMS``."""
        figures = dict(zip(SUMS[:-LATENCIES], sums, strict=False))
        return cls(group=group, latencies=tuple(sums[-LATENCIES:]), **figures)

    def latency_s(self, share: float) -> float | None:
        """Return the seconds within which a share of the calls that succeeded ended, None without any.

        Read between the edges of its class, on their logarithms: at most √2 times the truth, or 1/√2.

        Args:
            share: from 0 to 1; 0.5 for the median.
        """
        wanted = share * sum(self.latencies)
        passed = 0
        for k, number in enumerate(self.latencies):
            if number and passed + number >= wanted:
                upper = EDGES_S[k] if k < len(EDGES_S) else EDGES_S[-1] * math.sqrt(2)
                return upper * 2 ** (((wanted - passed) / number - 1) / 2)
            passed += number
        return None


def add_rows(execute: Execute, rows: Iterable[Values]) -> None:
    """Add rows, new in this transaction, to the sums."""
    _store(execute, _summed(map(_needed_of, rows)))


def rebuild(execute: Execute, hour: str | None = None) -> None:
    """Make the sums of an hour anew from its rows, or those of all hours that there are."""
    if hour is None:
        execute(f"DELETE FROM {HOURS}")  # noqa: S608
        for (found,) in execute(f"SELECT DISTINCT substr({ORDER}, 1, 13) FROM {CALLS}"):  # noqa: S608
            rebuild(execute, _hour(str(found)))
        return
    begins = datetime.fromisoformat(hour).replace(tzinfo=UTC)
    execute(f"DELETE FROM {HOURS} WHERE hour = :hour", {"hour": hour})  # noqa: S608
    bounds = {"since": _text(begins), "until": _text(begins + timedelta(hours=1))}
    _store(execute, _summed(execute(_ROWS, bounds)))


def prune(execute: Execute, before: datetime) -> int:
    """Remove the rows that started before an instant, and their sums; returns how many those were."""
    bound = {"before": _text(before)}
    ((found,),) = execute(f"SELECT COUNT(*) FROM {CALLS} WHERE {ORDER} < :before", bound)  # noqa: S608
    execute(f"DELETE FROM {CALLS} WHERE {ORDER} < :before", bound)  # noqa: S608
    hour = _hour(bound["before"])
    execute(f"DELETE FROM {HOURS} WHERE hour < :hour", {"hour": hour})  # noqa: S608
    if before != _floor(before):
        rebuild(execute, hour)
    return int(found or 0)


def totals(
    store: Store | None,
    since: datetime | None,
    until: datetime | None,
    by: Sequence[str],
    waiting: Iterable[Values] = (),
) -> list[Sums]:
    """Return the sums over the rows that started in ``[since, until)``, by group, groups in order.

    Whole hours are read from the sums, what is left at both ends from the rows.

    Args:
        store: None where there is nothing to read.
        by: of :data:`GROUPS`.
        waiting: rows that are not in the database yet, and within these bounds.

    Raises:
        ConfigurationError: another name to group by.
        LedgerError: the database cannot be read.
    """
    if unknown := [name for name in by if name not in GROUPS]:
        raise ConfigurationError(f"cannot sum by {unknown[0]!r}; the names are {', '.join(GROUPS)}")
    since = _FIRST if since is None else since.astimezone(UTC)
    until = _LAST if until is None else until.astimezone(UTC)
    first, last = _ceil(since), _floor(until)
    ends = [(since, first), (last, until)] if first <= last else [(since, until)]
    groups: dict[Key, list[int]] = {}
    fine = _summed(map(_needed_of, waiting))
    if store is not None:
        if first < last:
            _merge(groups, _whole_hours(store, _hour(_text(first)), _hour(_text(last)), by))
        bounds = ({"since": _text(begin), "until": _text(end)} for begin, end in ends if begin < end)
        _merge(fine, _summed(chain.from_iterable(store.query(_ROWS, each) for each in bounds)).items())
    _merge(groups, ((tuple(_part(key, name) for name in by), sums) for key, sums in fine.items()))
    return [Sums.of(group, sums) for group, sums in sorted(groups.items())]


def _whole_hours(store: Store, first: str, last: str, by: Sequence[str]) -> Iterator[tuple[Key, list[int]]]:
    columns = [GROUPS[name] for name in by]
    sql = f"""SELECT {", ".join((*columns, *(f"SUM({name})" for name in SUMS)))} FROM {HOURS}
        WHERE hour >= :first AND hour < :last{" GROUP BY " * bool(by)}{", ".join(columns)}"""  # noqa: S608
    for row in store.query(sql, {"first": first, "last": last}):
        if row[len(by)] is not None:  # of no rows at all, the sum is unknown
            yield tuple(map(str, row[: len(by)])), [int(n or 0) for n in row[len(by) :]]


def _part(key: Key, name: str) -> str:
    return key[0][: _SPANS[name]] if name in _SPANS else key[DIMENSIONS.index(name)]


def _merge(groups: dict[Key, list[int]], more: Iterable[tuple[Key, list[int]]]) -> None:
    for key, sums in more:
        known = groups.get(key)
        groups[key] = sums if known is None else list(map(add, known, sums))


def _store(execute: Execute, groups: dict[Key, list[int]]) -> None:
    for key in sorted(groups):  # in one order, or two writers could wait for each other
        execute(_ADD, dict(zip((*DIMENSIONS, *SUMS), (*key, *groups[key]), strict=True)))


def _summed(rows: Iterable[Sequence[Value]]) -> dict[Key, list[int]]:
    """Return the sums of rows, of which the needed columns are given, by all dimensions."""
    groups: dict[Key, list[int]] = {}
    for row in rows:
        key, figures, latency = _figures(row)
        sums = groups.get(key)
        if sums is None:
            sums = groups[key] = [0] * len(SUMS)
        for k, figure in enumerate(figures):
            if figure:
                sums[k] += figure
        if latency is not None:
            sums[len(figures) + latency] += 1
    return groups


def _figures(row: Sequence[Any]) -> tuple[Key, tuple[int | None, ...], int | None]:
    """Return what a row adds: its key, its figures in the order of ``SUMS``, its latency's class if any."""
    (
        started, operation, provider, model, served, route, status, error, streamed, purpose,
        strategy, pair, method, parent, tokens_in, tokens_out, cached,
        written, reasoning, predicted_accepted, predicted_rejected, drafted, accepted,
        steps, cost, cost_estimated, usage_estimated, attempts, latency_s, engine_s, ttft_s,
    ) = row  # fmt: skip
    key = (
        _hour(started), operation, provider, model, served or "", route, status, error or "",
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


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _hour(timestamp: str) -> str:
    """Return the hour of a time as text, as the sums call it."""
    return f"{timestamp[:10]} {timestamp[11:13]}:00"


def _floor(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _ceil(at: datetime) -> datetime:
    hour = _floor(at)
    return hour if hour == at else hour + timedelta(hours=1)
