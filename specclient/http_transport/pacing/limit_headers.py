"""Rate-limit headers of all vendors, parsed into the state of each limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from specclient.http_transport import retry

LimitUnit = Literal["requests", "tokens", "partial_tokens"]
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_EPOCH_S, _EPOCH_MS = 1e9, 1e12  # a reset of at least this is a time since the epoch


class RateLimitHeader(NamedTuple):
    """The headers of one limit of a vendor.

    Attributes:
        unit: what is counted; ``partial_tokens`` for a part of the tokens (prompt or completion) that is only
            known after the call.
        limit, remaining, reset: names of the headers; ``reset`` may be one that is never sent.
        period_s: the limit's period, in seconds.
        steady: whether it refills continuously until ``reset``; otherwise it refills at ``reset``.
    """

    unit: LimitUnit
    limit: str
    remaining: str
    reset: str
    period_s: float
    steady: bool


def _plain(
    unit: LimitUnit, what: str, period_s: float = _MINUTE_S, *, steady: bool = True
) -> RateLimitHeader:
    limit, remaining, reset = (f"x-ratelimit-{part}{what}" for part in ("limit", "remaining", "reset"))
    return RateLimitHeader(unit, limit, remaining, reset, period_s, steady)


def _anthropic(unit: LimitUnit, what: str) -> RateLimitHeader:
    limit, remaining, reset = (
        f"anthropic-ratelimit-{what}-{part}" for part in ("limit", "remaining", "reset")
    )
    return RateLimitHeader(unit, limit, remaining, reset, _MINUTE_S, steady=True)


#: All limits with headers. Monthly limits are omitted, because requests do not wait for those.
RATE_LIMIT_HEADERS: tuple[RateLimitHeader, ...] = (
    # OpenAI, Azure (no limit, hence not read), Groq (requests per day, as its reset shows), SambaNova
    _plain("requests", "-requests"),
    _plain("tokens", "-tokens"),
    _plain("tokens", "-project-tokens"),
    _anthropic("requests", "requests"),
    _anthropic("tokens", "tokens"),
    _anthropic("partial_tokens", "input-tokens"),
    _anthropic("partial_tokens", "output-tokens"),
    # Cerebras
    _plain("requests", "-requests-minute", steady=False),
    _plain("requests", "-requests-hour", _HOUR_S, steady=False),
    _plain("requests", "-requests-day", _DAY_S, steady=False),
    _plain("tokens", "-tokens-minute", steady=False),
    _plain("tokens", "-tokens-hour", _HOUR_S, steady=False),
    _plain("tokens", "-tokens-day", _DAY_S, steady=False),
    # Mistral
    RateLimitHeader(
        "tokens", "ratelimitbysize-limit", "ratelimitbysize-remaining", "ratelimitbysize-reset", 60.0, False
    ),
    RateLimitHeader(
        "tokens",
        "x-ratelimitbysize-limit-minute",
        "x-ratelimitbysize-remaining-minute",
        "ratelimitbysize-reset",
        _MINUTE_S,
        steady=False,
    ),
    # Fireworks
    _plain("partial_tokens", "-tokens-prompt"),
    _plain("partial_tokens", "-tokens-cache-adjusted-prompt"),
    _plain("partial_tokens", "-tokens-generated"),
    # Together (per second), OpenRouter and many gateways (the reset is a time)
    _plain("requests", "", 1.0, steady=False),
    RateLimitHeader(
        "tokens", "x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset", 1.0, steady=False
    ),
)


_BY_REMAINING = {row.remaining: row for row in RATE_LIMIT_HEADERS}


class RateLimitState(NamedTuple):
    """The state of one limit: capacity, units left, and seconds until it is full (None if unknown)."""

    row: RateLimitHeader
    capacity: float
    left: float
    full_in: float | None


def read_rate_limits(headers: Mapping[str, str], now: Callable[[], float]) -> Iterator[RateLimitState]:
    """Yield the limits in a response's headers (names in lower case); ``now`` is seconds since the epoch."""
    for name in _BY_REMAINING.keys() & headers:
        row = _BY_REMAINING[name]
        if (limit := headers.get(row.limit)) is None:
            continue
        left, capacity = _count(headers[name]), _count(limit)
        if capacity > 0 and left >= 0:  # some vendors send -1 for "no limit"
            text = headers.get(row.reset)
            yield RateLimitState(row, capacity, left, None if text is None else _seconds(text, now()))


def _count(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _seconds(text: str, now: float) -> float | None:
    seconds = retry.parse_delay(text, now)
    if seconds is None or seconds < _EPOCH_S:
        return seconds
    return max(0.0, (seconds / 1000 if seconds >= _EPOCH_MS else seconds) - now)
