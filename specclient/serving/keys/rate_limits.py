"""Rate limits per minute with a sliding window.

The use in one second counts for 61 seconds, so that no interval of 60 seconds exceeds the limit. The maximum
tokens of a call are reserved before it is sent, and corrected when it has ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specclient.openai_http.errors import ServingError
from specclient.serving.keys.key import StoredKey

__all__ = [
    "SPAN_S",
    "LimitDecision",
    "LimitUsage",
    "LocalUsageMeter",
    "SlidingWindow",
    "UsageMeter",
    "rate_limit_error",
    "rate_limit_headers",
]

#: Seconds for which the use in one second counts.
SPAN_S = 61
#: Seconds that a slot may be ahead of the clock; beyond them the clock was set back.
_AHEAD_S = 1
_MOST_KEYS = 4096


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """The state of one limit of a key.

    Attributes:
        limit: maximum per minute.
        used: use in the last minute.
        full_s: seconds until the whole limit is available again.
        wait_s: seconds until the requested amount fits; 0 if it fits now, None if it never fits.
    """

    limit: int
    used: int
    full_s: float
    wait_s: float | None

    @property
    def remaining(self) -> int:
        """The available amount."""
        return max(self.limit - self.used, 0)

    def after(self, amount: int, slot: int, now: float) -> LimitUsage:
        """Return the state after an amount that fitted was counted in a second."""
        full_s = max(self.full_s, slot + SPAN_S - now) if amount else self.full_s
        return LimitUsage(self.limit, self.used + amount, full_s, 0.0)


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """The decision about a reservation, with the state of the limits after it.

    Attributes:
        requests: state of the request limit; None if there is none.
        tokens: state of the token limit; None if there is none.
        slot: the second of the reservation; None if it was refused.
    """

    requests: LimitUsage | None
    tokens: LimitUsage | None
    slot: int | None


class UsageMeter(Protocol):
    """Counts the use of keys."""

    async def reserve(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """Reserve requests and tokens, or neither if one does not fit. Zeros only return the state."""
        ...

    async def adjust(self, key: StoredKey, slot: int, tokens: int) -> None:
        """Correct the tokens of a reservation.

        Args:
            key: the stored key.
            slot: the slot of the reservation's decision.
            tokens: number of tokens to add; may be negative.
        """
        ...

    async def close(self) -> None:
        """Close the connections of the meter."""
        ...


class SlidingWindow:
    """The use of one limit by second."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}

    def use(self, limit: int, wanted: int, now: float) -> LimitUsage:
        """Return the state of a limit for a requested amount."""
        for slot in [slot for slot in self._slots if not now - SPAN_S < slot <= now + _AHEAD_S]:
            amount = self._slots.pop(slot)
            if slot > now:  # the clock was set back: otherwise it would count until this second comes again
                self.add(int(now), amount)
        used = sum(self._slots.values())
        newest = max((slot for slot, amount in self._slots.items() if amount), default=None)
        full_s = 0.0 if newest is None else newest + SPAN_S - now
        return LimitUsage(limit, used, full_s, self._wait(limit, used, wanted, now))

    def add(self, slot: int, amount: int) -> None:
        """Count an amount in a second. Expired seconds are removed by the next :meth:`use`."""
        self._slots[slot] = max(self._slots.get(slot, 0) + amount, 0)

    def used_since(self, begin: float) -> int:
        """Return the amount counted in the seconds after ``begin``."""
        return sum(amount for slot, amount in self._slots.items() if slot > begin)

    @property
    def empty(self) -> bool:
        """Whether nothing is counted."""
        return not self._slots

    def _wait(self, limit: int, used: int, amount: int, now: float) -> float | None:
        over = used + amount - limit
        if not amount or over <= 0:
            return 0.0
        if amount > limit:
            return None
        for slot in sorted(self._slots):
            over -= self._slots[slot]
            if over <= 0:
                return slot + SPAN_S - now
        return None


class LocalUsageMeter:
    """Counts the use of keys in this process only.

    Args:
        now: returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._accounts: dict[str, tuple[SlidingWindow, SlidingWindow]] = {}

    async def reserve(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """See :class:`UsageMeter`."""
        return self.reserve_now(key, requests, tokens)

    async def adjust(self, key: StoredKey, slot: int, tokens: int) -> None:
        """See :class:`UsageMeter`."""
        self._of(key)[1].add(slot, tokens)

    async def close(self) -> None:
        """Do nothing."""

    def reserve_now(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """Do what :meth:`reserve` does, without waiting."""
        now, accounts = self._now(), self._of(key)
        wanted = ((key.requests_per_minute, requests), (key.tokens_per_minute, tokens))
        uses = [
            None if limit is None else account.use(limit, amount, now)
            for account, (limit, amount) in zip(accounts, wanted, strict=True)
        ]
        if any(use is not None and use.wait_s != 0.0 for use in uses):
            return LimitDecision(uses[0], uses[1], None)
        slot = int(now)
        for place, (_, amount) in enumerate(wanted):
            if (use := uses[place]) is not None and amount:
                accounts[place].add(slot, amount)
                uses[place] = use.after(amount, slot, now)
        return LimitDecision(uses[0], uses[1], slot)

    def exceeds(self, key: StoredKey, requests: int, tokens: int, span_s: float) -> bool:
        """Return whether a use would exceed a limit, counting only the use of the last ``span_s`` seconds."""
        limits = (key.requests_per_minute, key.tokens_per_minute)
        uses = zip(self._of(key), limits, (requests, tokens), strict=True)
        begin = self._now() - span_s
        return any(
            limit is not None and amount and account.used_since(begin) + amount > limit
            for account, limit, amount in uses
        )

    def count(self, key: StoredKey, requests: int, tokens: int) -> int:
        """Count a use that was permitted, and return its second."""
        now, limits = self._now(), (key.requests_per_minute, key.tokens_per_minute)
        for account, limit, amount in zip(self._of(key), limits, (requests, tokens), strict=True):
            if limit is not None and amount:
                account.use(0, 0, now)  # removes expired seconds
                account.add(int(now), amount)
        return int(now)

    def _of(self, key: StoredKey) -> tuple[SlidingWindow, SlidingWindow]:
        found = self._accounts.get(key.digest)
        if found is None:
            if len(self._accounts) >= _MOST_KEYS:  # of revoked keys
                self._forget()
            found = self._accounts[key.digest] = (SlidingWindow(), SlidingWindow())
        return found

    def _forget(self) -> None:
        now = self._now()
        for digest, accounts in list(self._accounts.items()):
            for account in accounts:
                account.use(0, 0, now)
            if all(account.empty for account in accounts):
                del self._accounts[digest]


def rate_limit_headers(taken: LimitDecision) -> dict[str, str]:
    """Return OpenAI's rate-limit headers for a key."""
    lines: dict[str, str] = {}
    for unit, use in (("requests", taken.requests), ("tokens", taken.tokens)):
        if use is not None:
            lines[f"x-ratelimit-limit-{unit}"] = str(use.limit)
            lines[f"x-ratelimit-remaining-{unit}"] = str(use.remaining)
            lines[f"x-ratelimit-reset-{unit}"] = _span(use.full_s)
    return lines


def rate_limit_error(key: StoredKey, taken: LimitDecision, requests: int, tokens: int) -> ServingError:
    """Return the error for a refused reservation."""
    requested = {"tokens": (taken.tokens, tokens), "requests": (taken.requests, requests)}
    refused = [(unit, use, amount) for unit, (use, amount) in requested.items() if use and use.wait_s != 0.0]
    unit, use, amount = max(refused, key=lambda each: math.inf if each[1].wait_s is None else each[1].wait_s)
    message = (
        f"rate limit reached for key {key.name!r} in {unit} per minute: limit {use.limit}, used {use.used}, "
        f"requested {amount}. "
    )
    if use.wait_s is None:
        message += f"A request for more than {use.limit} is never served; send a smaller one."
        headers = {"x-should-retry": "false"}
    else:
        seconds = max(1, math.ceil(use.wait_s))
        message += f"Try again in {seconds} s."
        headers = {"retry-after": str(seconds)}
    return ServingError(429, message, None, "rate_limit_exceeded", unit, headers)


def _span(seconds: float) -> str:
    """Return a duration in OpenAI's format: ``0s``, ``740ms``, ``6m0s``."""
    if 0 < seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
