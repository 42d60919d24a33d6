"""Forecasts of a call from the ledger rows of its route, or from its route's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.quantile_sketch import QuantileSketch, quantiles
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow

__all__ = [
    "COMPLETION_TOKENS",
    "WINDOW",
    "LedgerForecast",
    "expected_length",
    "forecast",
    "forecast_of_estimate",
    "typical_length",
]

#: The assumed tokens of an answer without any evidence.
COMPLETION_TOKENS = 256
#: The most calls that the forecast of an estimate counts as its evidence.
WINDOW = 50


@dataclass(frozen=True, slots=True)
class LedgerForecast:
    """The forecast of the next call on a route.

    Attributes:
        completion_tokens: of the answer.
        ttft_s: seconds to the first token, None where unknown.
        latency_s: seconds to the end, None where unknown.
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
    return _cut(round(median(tokens)) if tokens else COMPLETION_TOKENS, max_tokens)


def typical_length(answers: Sequence[QuantileSketch], max_tokens: int | None = None) -> int:
    """Return the median length of the answers of several routes, cut at ``max_tokens``."""
    mixture = [(tokens, tokens.weight()) for tokens in answers if tokens.weight()]
    return _cut(round(quantiles(mixture, (0.5,))[0]) if mixture else COMPLETION_TOKENS, max_tokens)


def _cut(length: int, max_tokens: int | None) -> int:
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


def forecast_of_estimate(estimate: RouteEstimate, length: int, *, calls: int) -> LedgerForecast:
    """Forecast a call from the estimate of its route.

    Args:
        length: tokens of the answer.
        calls: the finished calls of the route.
    """
    return LedgerForecast(
        completion_tokens=length,
        ttft_s=estimate.ttft_s if estimate.ttft_limit_s is not None else None,
        latency_s=estimate.latency_s(length),
        engine_s=_engine_s(estimate, length),
        acceptance_rate=estimate.acceptance_rate,
        evidence=min(calls, WINDOW),
    )


def _engine_s(estimate: RouteEstimate, tokens: int) -> float | None:
    """Return the seconds that an engine in this process works on prompt and answer."""
    if estimate.engine_token_s is None:
        return None
    return estimate.latency_s(tokens) if estimate.assumed else estimate.engine_token_s * tokens


def _seconds_per_token(row: LedgerRow, typical_ttft_s: float) -> float:
    if row.engine_s is not None:
        return row.engine_s / (row.completion_tokens or 1)
    ttft = typical_ttft_s if row.ttft_s is None else row.ttft_s
    return max(row.latency_s - ttft, 0.0) / (row.completion_tokens or 1)
