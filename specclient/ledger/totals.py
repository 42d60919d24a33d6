"""Turn the sums by hour beside a ledger's rows, and the rows at both ends, into totals over any time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from specclient.errors import ConfigurationError
from specclient.ledger.rollup import (
    EDGES_S,
    SELECT_NEEDED,
    GroupKey,
    hour_ceil,
    hour_floor,
    hour_of,
    merge_sums,
    needed_values,
    sum_rows,
    text_of,
)
from specclient.ledger.schema import (
    DIMENSIONS,
    HOURS_TABLE,
    LATENCY_CLASSES,
    SUM_NAMES,
    LedgerStore,
    RowValues,
)

__all__ = ["ROLLUP_GROUPS", "CallTotals", "totals_by_group"]

#: Longer spans of time are what hours begin with, so many letters of them.
_SPANS = {"day": 10, "month": 7}
#: Names to group by, with the SQL that reads them of a sum.
ROLLUP_GROUPS = {name: name for name in DIMENSIONS} | {
    name: f"substr(hour, 1, {length})" for name, length in _SPANS.items()
}

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CallTotals:
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

    group: GroupKey
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
    def of(cls, group: GroupKey, sums: Sequence[int]) -> CallTotals:
        """Return the sums of a group, given in the order of ``SUM_NAMES``."""
        figures = dict(zip(SUM_NAMES[:-LATENCY_CLASSES], sums, strict=False))
        return cls(group=group, latencies=tuple(sums[-LATENCY_CLASSES:]), **figures)

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


def totals_by_group(
    store: LedgerStore | None,
    since: datetime | None,
    until: datetime | None,
    by: Sequence[str],
    waiting: Iterable[RowValues] = (),
) -> list[CallTotals]:
    """Return the sums over the rows that started in ``[since, until)``, by group, groups in order.

    Whole hours are read from the sums, what is left at both ends from the rows.

    Args:
        store: None where there is nothing to read.
        by: of :data:`ROLLUP_GROUPS`.
        waiting: rows that are not in the database yet, and within these bounds.

    Raises:
        ConfigurationError: another name to group by.
        LedgerError: the database cannot be read.
    """
    if unknown := [name for name in by if name not in ROLLUP_GROUPS]:
        raise ConfigurationError(f"cannot sum by {unknown[0]!r}; the names are {', '.join(ROLLUP_GROUPS)}")
    since = _FIRST if since is None else since.astimezone(UTC)
    until = _LAST if until is None else until.astimezone(UTC)
    first, last = hour_ceil(since), hour_floor(until)
    ends = [(since, first), (last, until)] if first <= last else [(since, until)]
    groups: dict[GroupKey, list[int]] = {}
    fine = sum_rows(map(needed_values, waiting))
    if store is not None:
        if first < last:
            merge_sums(groups, _whole_hours(store, hour_of(text_of(first)), hour_of(text_of(last)), by))
        bounds = ({"since": text_of(begin), "until": text_of(end)} for begin, end in ends if begin < end)
        merge_sums(
            fine, sum_rows(chain.from_iterable(store.query(SELECT_NEEDED, each) for each in bounds)).items()
        )
    merge_sums(groups, ((tuple(_part(key, name) for name in by), sums) for key, sums in fine.items()))
    return [CallTotals.of(group, sums) for group, sums in sorted(groups.items())]


def _whole_hours(
    store: LedgerStore, first: str, last: str, by: Sequence[str]
) -> Iterator[tuple[GroupKey, list[int]]]:
    columns = [ROLLUP_GROUPS[name] for name in by]
    sql = f"""SELECT {", ".join((*columns, *(f"SUM({name})" for name in SUM_NAMES)))} FROM {HOURS_TABLE}
        WHERE hour >= :first AND hour < :last{" GROUP BY " * bool(by)}{", ".join(columns)}"""  # noqa: S608
    for row in store.query(sql, {"first": first, "last": last}):
        if row[len(by)] is not None:  # of no rows at all, the sum is unknown
            yield tuple(map(str, row[: len(by)])), [int(n or 0) for n in row[len(by) :]]


def _part(key: GroupKey, name: str) -> str:
    return key[0][: _SPANS[name]] if name in _SPANS else key[DIMENSIONS.index(name)]
