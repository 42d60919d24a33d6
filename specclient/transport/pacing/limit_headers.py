"""Turn the rate-limit headers of an answer, in any vendor's spelling, into what is left of each limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from specclient.transport import retry

LimitUnit = Literal["requests", "tokens", "part"]
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_EPOCH_S, _EPOCH_MS = 1e9, 1e12  # a reset of at least this is an instant


class RateLimitHeader(NamedTuple):
    """One limit as a vendor writes it.

    Attributes:
        unit: what is counted; ``part`` for a share of the tokens (prompt or answer) that nobody can foretell.
        limit, remaining, reset: names of headers; ``reset`` may be one that is never sent.
        period_s: seconds the limit is for.
        steady: whether it refills bit by bit, ``reset`` being when it is full; else all at ``reset``.
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


#: Every limit there is a header for. A limit by the month is none to wait for.
RATE_LIMIT_HEADERS: tuple[RateLimitHeader, ...] = (
    # OpenAI, Azure (no limit, hence not read), Groq (requests by the day: its reset tells), SambaNova
    _plain("requests", "-requests"),
    _plain("tokens", "-tokens"),
    _plain("tokens", "-project-tokens"),
    _anthropic("requests", "requests"),
    _anthropic("tokens", "tokens"),
    _anthropic("part", "input-tokens"),
    _anthropic("part", "output-tokens"),
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
    _plain("part", "-tokens-prompt"),
    _plain("part", "-tokens-cache-adjusted-prompt"),
    _plain("part", "-tokens-generated"),
    # Together (by the second), OpenRouter and many gateways (the reset is an instant)
    _plain("requests", "", 1.0, steady=False),
    RateLimitHeader(
        "tokens", "x-tokenlimit-limit", "x-tokenlimit-remaining", "x-tokenlimit-reset", 1.0, steady=False
    ),
)


_BY_REMAINING = {row.remaining: row for row in RATE_LIMIT_HEADERS}


class RateLimitState(NamedTuple):
    """What an answer says of one limit: its capacity, what is left, and in how many seconds it is full."""

    row: RateLimitHeader
    capacity: float
    left: float
    full_in: float | None


def read_rate_limits(headers: Mapping[str, str], now: Callable[[], float]) -> Iterator[RateLimitState]:
    """Yield what the headers of an answer (names in lower case) say; ``now``: seconds since the epoch."""
    for name in _BY_REMAINING.keys() & headers:
        row = _BY_REMAINING[name]
        if (limit := headers.get(row.limit)) is None:
            continue
        left, capacity = _count(headers[name]), _count(limit)
        if capacity > 0 and left >= 0:  # some say -1 for "none"
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
