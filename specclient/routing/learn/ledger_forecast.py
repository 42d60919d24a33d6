"""Forecasts of a call from the ledger rows of its route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specclient.routing.learn.priors import RoutePrior
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow

__all__ = ["COMPLETION_TOKENS", "LedgerForecast", "expected_length", "forecast"]

#: The assumed tokens of an answer without any evidence.
COMPLETION_TOKENS = 256


@dataclass(frozen=True, slots=True)
class LedgerForecast:
    """The forecast of the next call on a route.

    Attributes:
        completion_tokens: of the answer.
        ttft_s: seconds to the first token; ``latency_s``: to the end; None where unknown.
        engine_s: seconds of the local engine, None for hosted routes or where unknown.
        acceptance_rate: the share of accepted draft tokens in the finished calls, None if none was reported.
        evidence: the number of finished calls behind it; 0 means priors only.
    """

    completion_tokens: int
    ttft_s: float | None = None
    latency_s: float | None = None
    engine_s: float | None = None
    acceptance_rate: float | None = None
    evidence: int = 0


def expected_length(rows: Sequence[LedgerRow], max_tokens: int | None = None) -> int:
    """Return the median length of finished answers, cut at ``max_tokens``."""
    with import_lock:
        from statistics import median  # noqa: PLC0415 - only forecasts need it

    tokens = [row.completion_tokens for row in rows if row.completion_tokens]
    length = round(median(tokens)) if tokens else COMPLETION_TOKENS
    return length if max_tokens is None else max(min(length, max_tokens), 0)


def forecast(rows: Sequence[LedgerRow], *, length: int, prior: RoutePrior | None = None) -> LedgerForecast:
    """Forecast a call from finished calls on the same route.

    The seconds are linear in the answer: ``ttft + tokens * seconds per token``, each a median. A call that
    was not streamed has no time to the first token; the median of the streamed ones is used. An engine in
    this process is forecast by its seconds of work, without queueing and the loading of weights.

    Args:
        rows: finished calls with a known, positive number of completion tokens.
        length: tokens of the answer.
        prior: used without rows.
    """
    with import_lock:
        from statistics import median  # noqa: PLC0415 - as above

    if not rows:
        if prior is None:
            return LedgerForecast(completion_tokens=length)
        total = prior.ttft_s + prior.token_s * length
        return LedgerForecast(completion_tokens=length, ttft_s=prior.ttft_s, latency_s=total, engine_s=total)
    firsts = [row.ttft_s for row in rows if row.ttft_s is not None and row.engine_s is None]
    first = median(firsts) if firsts else None
    per_token = median(_seconds_per_token(row, first or 0.0) for row in rows if row.completion_tokens)
    working = [
        row.engine_s / row.completion_tokens
        for row in rows
        if row.engine_s is not None and row.completion_tokens
    ]
    known = [(row.accepted, row.drafted) for row in rows if row.accepted is not None and row.drafted]
    return LedgerForecast(
        completion_tokens=length,
        ttft_s=first,
        latency_s=(first or 0.0) + per_token * length,
        engine_s=median(working) * length if working else None,
        acceptance_rate=sum(a for a, _ in known) / sum(d for _, d in known) if known else None,
        evidence=len(rows),
    )


def _seconds_per_token(row: LedgerRow, typical_ttft_s: float) -> float:
    if row.engine_s is not None:
        return row.engine_s / (row.completion_tokens or 1)
    ttft = typical_ttft_s if row.ttft_s is None else row.ttft_s
    return max(row.latency_s - ttft, 0.0) / (row.completion_tokens or 1)
