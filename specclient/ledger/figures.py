"""The figures of the ledger: sums over calls and values computed from them, and their form in reports.

:class:`CallTotals` is the one table of them. The columns of ``calls_by_hour``, the sums, the columns of
reports and their texts follow from it. To add a figure, add a line to :class:`CallTotals` with the next
schema version as its ``since``; :mod:`.migrations` brings older ledgers up to date. Its values are

- in a column of ``calls``: a :class:`~.figure_kinds.Sum` or another kind names the column;
- a fact of the answer that is recorded nowhere yet: a :class:`~.figure_kinds.Counted` makes the column, and
  ``specclient/call/answer_counts.py`` counts the fact;
- in ``Call``, but in no column: :class:`.row.LedgerRow` gets a field.

A new schema version needs a snapshot for the tests: ``make ledger-snapshot``. Released figures are never
changed, as databases have them.

Figures are in the order of the CSV and JSON of reports; ``ReportText.place`` orders the columns of text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from specclient.ledger.figure_kinds import (
    Computed,
    Counted,
    CountOrNone,
    Figure,
    Flag,
    Histogram,
    ReportText,
    Sum,
)
from specclient.types.call import BOOKED_LATER

__all__ = ["COUNTED", "EDGES_S", "ENTRIES", "FIGURES", "SUM_NAMES", "CallTotals", "GroupKey", "percentile"]

#: The values that all rows of a group share, in the order of the names that they are grouped by.
GroupKey = tuple[str, ...]

#: Upper edges of the classes of latencies, in seconds; the last class has none. Each is √2 times the last.
EDGES_S = tuple(0.001 * 2 ** (k / 2) for k in range(39))
_EDGES_US = [round(edge * 1e6) for edge in EDGES_S]
#: Durations are cut to eleven days, in microseconds, so that sums of many fit into 64 bits.
_MAX_US = 10**12


def _us(seconds: float | None) -> int:
    """Return whole microseconds: unlike sums of floats, their sums are exact in any order."""
    return 0 if seconds is None else round(min(max(seconds, 0.0) * 1e6, _MAX_US))


def _ok_us(latency_s: float, status: str, purpose: str | None) -> int | None:
    return _us(latency_s) if status == "ok" and purpose not in BOOKED_LATER else None


def _both_known(drafted: int | None, accepted: int | None) -> bool:
    return drafted is not None and accepted is not None


def _drafted(drafted: int | None, accepted: int | None) -> int | None:
    return None if accepted is None else drafted


def _accepted(drafted: int | None, accepted: int | None) -> int | None:
    return None if drafted is None else accepted


def _accepted_in_steps(accepted: int | None, steps: int | None) -> int | None:
    return accepted if steps else None


def _steps(accepted: int | None, steps: int | None) -> int | None:
    return None if accepted is None else steps


def _estimated(cost_nano: int | None, cost_estimated: bool, usage_estimated: bool) -> bool:
    return cost_nano is not None and bool(cost_estimated or usage_estimated)


def _unanswered(
    cost_nano: int | None, status: str, prompt_tokens: int | None, completion_tokens: int | None
) -> bool:
    return cost_nano is None and status == "error" and prompt_tokens is None and completion_tokens is None


def _timed_tokens(completion_tokens: int | None, latency_s: float, engine_s: float | None) -> int | None:
    return completion_tokens if _us(latency_s if engine_s is None else engine_s) else None


def _timed_us(completion_tokens: int | None, latency_s: float, engine_s: float | None) -> int:
    return _us(latency_s if engine_s is None else engine_s) if completion_tokens else 0


def _latency(share: float) -> Callable[[CallTotals], float | None]:
    return lambda totals: totals.latency_s(share)


@dataclass(frozen=True)
class CallTotals:
    """The figures of a group of calls. Each is a sum over rows of the ledger, or computed from such sums.

    A row is one billed attempt. A call that a strategy made in several parts is counted by its parts alone.

    Attributes:
        group: the group's values, in the order of the names it is grouped by; "" where its rows have none.
        sums: the sums by name; see :data:`SUM_NAMES`.
        latencies_s: latencies of the calls that succeeded, ascending, if they are known one by one. Otherwise
            percentiles are estimated from ``latencies``.

        calls: number of rows; ``parts``: of those that are part of another call.
        errors: number of rows of status ``error``.
        tokens_in, tokens_out: over the rows with known counts. ``tokens_cached`` and ``tokens_written`` (to a
            cache) are parts of the first, ``tokens_reasoning`` of the second.
        predicted_accepted, predicted_rejected: tokens of predictions that callers sent.
        tool_calls: calls of the caller's functions and custom tools in answers.
        drafts: number of rows with both drafted and accepted tokens. ``drafted`` and ``accepted`` are over
            these rows, None without any; ``acceptance_rate`` is accepted / drafted.
        kept, passes: accepted tokens and verification passes of the rows with both;
            ``mean_accepted_length`` is 1 + kept / passes.
        cost_nano: nano-dollars of the priced rows; ``cost``: the same in dollars.
        unpriced: rows of unknown cost: no price is known, or no response came. A request that was refused, or
            never sent, cost nothing, which is known. ``unanswered`` of them failed before anything was
            counted.
        estimated: whether a price or token count behind ``cost_nano`` is an estimate.
        attempts: attempts, those without a bill included.
        cached_calls: rows of calls that the response cache answered. They are ``calls``, but used no tokens
            and cost nothing. ``saved_nano``: nano-dollars that their answers cost when they were made;
            ``cache_saved``: the same in dollars, None without such a row.
        prompt_cached_calls: rows with tokens that had a cache price at the provider. ``prompt_cache_nano``:
            nano-dollars that these prices saved, less what writing cost more; ``prompt_cache_saved``: the
            same in dollars, None without such a row.
        latency_us: microseconds of the rows of status ``ok``, without lines of batch jobs; ``latencies``:
            their numbers by class, see :data:`EDGES_S`; ``latency_p50_s``, ``latency_p95_s``,
            ``latency_p99_s``: their percentiles.
        engine_us: microseconds of the local engine.
        ttft_us: microseconds to the first text; ``ttfts``: the number of rows with one.
        timed_tokens, timed_us: generated tokens, and the microseconds they took (the engine's own where
            known), of the rows with both; ``tokens_per_s``: their ratio.
        tokens_per_pass: ``mean_accepted_length`` if tokens of a draft model are known.
    """

    group: GroupKey
    sums: Mapping[str, int]
    latencies_s: Sequence[float] | None = None

    calls = Sum("status", of=lambda _: 1, since=3, text=ReportText("calls", "count", 0, 1, always=True))
    parts = Sum("parent", of=lambda parent: parent is not None, since=3)
    errors = Sum(
        "status", of=lambda status: status == "error", since=3, text=ReportText("failed", "count", 1, 2)
    )
    tokens_in = Sum("prompt_tokens", since=3, text=ReportText("in", "count", 2, 3, always=True))
    tokens_out = Sum("completion_tokens", since=3, text=ReportText("out", "count", 3, 3, always=True))
    tokens_cached = Sum("cached_tokens", since=3, text=ReportText("cached", "count", 4, 8))
    tokens_written = Sum("cache_write_tokens", since=3, exported=False)
    tokens_reasoning = Sum("reasoning_tokens", since=3)
    predicted_accepted = Sum("predicted_accepted", since=3)
    predicted_rejected = Sum("predicted_rejected", since=3)
    tool_calls = Counted(since=4, text=ReportText("tool calls", "count", 4.5, 8))
    drafts = Sum("drafted", "accepted", of=_both_known, since=3, exported=False)
    drafted = CountOrNone("drafted", "accepted", of=_drafted, known="drafts", since=3)
    accepted = CountOrNone("drafted", "accepted", of=_accepted, known="drafts", since=3)
    kept = Sum("accepted", "steps", of=_accepted_in_steps, since=3, exported=False)
    passes = Sum("accepted", "steps", of=_steps, since=3, exported=False)
    acceptance_rate = Computed[float | None](
        lambda totals: (totals.accepted or 0) / totals.drafted if totals.drafted else None,
        text=ReportText("accepted", "percent", 5, 4),
    )
    mean_accepted_length = Computed[float | None](
        lambda totals: 1 + totals.kept / totals.passes if totals.passes else None
    )
    tokens_per_pass = Computed[float | None](
        lambda totals: totals.mean_accepted_length if totals.drafted else None,
        text=ReportText("tokens/pass", "decimal", 6, 5),
        exported=False,
    )
    cost_nano = Sum("cost_nano", since=3)
    unpriced = Sum(
        "cost_nano", of=lambda nano: nano is None, since=3, text=ReportText("unpriced", "count", 10, 2)
    )
    unanswered = Sum("cost_nano", "status", "prompt_tokens", "completion_tokens", of=_unanswered, since=3)
    estimated = Flag("cost_nano", "cost_estimated", "usage_estimated", of=_estimated, since=3)
    attempts = Sum("attempts", since=3, exported=False)
    latency_us = Sum("latency_s", "status", "purpose", of=_ok_us, since=3, exported=False)
    engine_us = Sum("engine_s", of=_us, since=3, exported=False)
    ttft_us = Sum("ttft_s", of=_us, since=3, exported=False)
    ttfts = Sum("ttft_s", of=lambda ttft_s: ttft_s is not None, since=3, exported=False)
    timed_tokens = Sum(
        "completion_tokens", "latency_s", "engine_s", of=_timed_tokens, since=3, exported=False
    )
    timed_us = Sum("completion_tokens", "latency_s", "engine_s", of=_timed_us, since=3, exported=False)
    latencies = Histogram(
        "latency_s", "status", "purpose", of=_ok_us, edges=_EDGES_US, since=3, exported=False
    )
    latency_p50_s = Computed(_latency(0.5), text=ReportText("p50", "latency", 8, 6, always=True))
    latency_p95_s = Computed(_latency(0.95), text=ReportText("p95", "latency", 9, 7, always=True))
    latency_p99_s = Computed(_latency(0.99))
    tokens_per_s = Computed[float | None](
        lambda totals: 1e6 * totals.timed_tokens / totals.timed_us if totals.timed_tokens else None,
        text=ReportText("tokens/s", "rate", 7, 4, always=True),
    )
    cached_calls = Sum("cached", of=bool, since=5, text=ReportText("from cache", "count", 1.5, 4))
    saved_nano = Sum("saved_nano", since=5, exported=False)
    cache_saved = Computed[Decimal | None](
        lambda totals: Decimal(totals.saved_nano).scaleb(-9) if totals.cached_calls else None,
        text=ReportText("cache saved", "dollars", 10.5, 4),
    )
    prompt_cached_calls = Sum("prompt_cache_nano", of=lambda nano: nano is not None, since=6, exported=False)
    prompt_cache_nano = Sum("prompt_cache_nano", since=6, exported=False)
    prompt_cache_saved = Computed[Decimal | None](
        lambda totals: Decimal(totals.prompt_cache_nano).scaleb(-9) if totals.prompt_cached_calls else None,
        text=ReportText("prompt cache saved", "dollars", 10.6, 5),
    )
    cost = Computed(
        lambda totals: Decimal(totals.cost_nano).scaleb(-9),
        text=ReportText("cost", "cost", 11, 0, always=True),
    )

    @classmethod
    def of(
        cls, group: GroupKey, sums: Iterable[int], latencies_s: Sequence[float] | None = None
    ) -> CallTotals:
        """Return the totals of a group, given its sums in the order of :data:`SUM_NAMES`."""
        return cls(group, dict(zip(SUM_NAMES, sums, strict=True)), latencies_s)

    def latency_s(self, share: float) -> float | None:
        """Return the seconds within which a share of the calls that succeeded ended, None without any.

        Exact if the latencies are known one by one. Otherwise the value is interpolated between the edges of
        its class, on a logarithmic scale: at most √2 times the exact value, and at least 1/√2 times.

        Args:
            share: from 0 to 1; 0.5 for the median.
        """
        if self.latencies_s is not None:
            return percentile(self.latencies_s, share)
        latencies = self.latencies
        wanted = share * sum(latencies)
        passed = 0
        for k, number in enumerate(latencies):
            if number and passed + number >= wanted:
                upper = EDGES_S[k] if k < len(EDGES_S) else EDGES_S[-1] * math.sqrt(2)
                return upper * 2 ** (((wanted - passed) / number - 1) / 2)
            passed += number
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the exported figures as values for JSON; dollars are exact, as text."""
        values = {entry.name: getattr(self, entry.name) for entry in ENTRIES if entry.exported}
        return {name: f"{value:f}" if isinstance(value, Decimal) else value for name, value in values.items()}


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that a share of the values does not exceed, interpolated between neighbours.

    Args:
        ordered: ascending; an empty sequence gives None.
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


#: All figures, the computed ones included, and those that are summed.
ENTRIES = tuple(each for each in vars(CallTotals).values() if isinstance(each, (Figure, Computed)))
FIGURES = tuple(each for each in ENTRIES if isinstance(each, Figure))
#: The figures that have a column in ``calls`` by themselves.
COUNTED = tuple(each for each in FIGURES if isinstance(each, Counted))
#: Names of the sums, which are the columns of ``calls_by_hour`` behind the dimensions.
SUM_NAMES = tuple(name for figure in FIGURES for name in figure.sum_names)
