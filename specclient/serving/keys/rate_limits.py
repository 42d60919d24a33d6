"""Turn what a key has used in the last minute into whether it may go on, and how long it has to wait.

A minute slides: what is used in one second counts until 61 seconds later, so that in no 60 seconds more is
used than the limit. Tokens are taken before a call as the most it may come to, and put right when it is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specclient.serving.errors import ServingError
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

#: Seconds for which what was used in one second counts.
SPAN_S = 61
_MOST_KEYS = 4096


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """How one limit of a key stands.

    Attributes:
        limit: a minute.
        used: in the minute before.
        full_s: seconds until nothing of it counts any more.
        wait_s: seconds until what was asked for fits; 0 where it does, None where it never will.
    """

    limit: int
    used: int
    full_s: float
    wait_s: float | None

    @property
    def remaining(self) -> int:
        """What is left of it."""
        return max(self.limit - self.used, 0)


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """What came of asking: how the limits stand now, None where there is none.

    Attributes:
        slot: the second in which it was taken; None where it was refused, and nothing was taken.
    """

    requests: LimitUsage | None
    tokens: LimitUsage | None
    slot: int | None


class UsageMeter(Protocol):
    """Counts what keys use."""

    async def take(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """Take both or, where one does not fit, none; zeros only look."""
        ...

    async def correct(self, key: StoredKey, slot: int, tokens: int) -> None:
        """Add tokens, or take some away where negative, to what was taken in a second."""
        ...

    async def close(self) -> None:
        """Close what it has open."""
        ...


class SlidingWindow:
    """What one limit has counted, by the second."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}

    def use(self, limit: int, asked: int, now: float) -> LimitUsage:
        """Return how a limit stands for what is asked."""
        for slot in [slot for slot in self._slots if slot <= now - SPAN_S]:
            del self._slots[slot]
        used = sum(self._slots.values())
        newest = max((slot for slot, amount in self._slots.items() if amount), default=None)
        full_s = 0.0 if newest is None else newest + SPAN_S - now
        return LimitUsage(limit, used, full_s, self._wait(limit, used, asked, now))

    def add(self, slot: int, amount: int) -> None:
        """Count an amount in a second; in one that counts no more it is forgotten with the next look."""
        self._slots[slot] = max(self._slots.get(slot, 0) + amount, 0)

    @property
    def empty(self) -> bool:
        """Whether nothing is counted."""
        return not self._slots

    def _wait(self, limit: int, used: int, asked: int, now: float) -> float | None:
        over = used + asked - limit
        if not asked or over <= 0:
            return 0.0
        if asked > limit:
            return None
        for slot in sorted(self._slots):
            over -= self._slots[slot]
            if over <= 0:
                return slot + SPAN_S - now
        return None


class LocalUsageMeter:
    """Counts what keys use in this process alone.

    Args:
        now: seconds, never running backwards.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._accounts: dict[str, tuple[SlidingWindow, SlidingWindow]] = {}

    async def take(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """See :class:`UsageMeter`."""
        return self.taken(key, requests, tokens)

    async def correct(self, key: StoredKey, slot: int, tokens: int) -> None:
        """See :class:`UsageMeter`."""
        self._of(key)[1].add(slot, tokens)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def taken(self, key: StoredKey, requests: int, tokens: int) -> LimitDecision:
        """Return what :meth:`take` does."""
        now, accounts = self._now(), self._of(key)
        limits, asked = (key.requests_per_minute, key.tokens_per_minute), (requests, tokens)
        uses = [_use(*each, now) for each in zip(accounts, limits, asked, strict=True)]
        if any(use is not None and use.wait_s != 0.0 for use in uses):
            return LimitDecision(uses[0], uses[1], None)
        for account, limit, amount in zip(accounts, limits, asked, strict=True):
            if limit is not None and amount:
                account.add(int(now), amount)
        after = [_use(account, limit, 0, now) for account, limit in zip(accounts, limits, strict=True)]
        return LimitDecision(after[0], after[1], int(now))

    def _of(self, key: StoredKey) -> tuple[SlidingWindow, SlidingWindow]:
        found = self._accounts.get(key.digest)
        if found is None:
            if len(self._accounts) >= _MOST_KEYS:  # keys that are gone leave theirs behind
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


def _use(account: SlidingWindow, limit: int | None, asked: int, now: float) -> LimitUsage | None:
    return None if limit is None else account.use(limit, asked, now)


def rate_limit_headers(taken: LimitDecision) -> dict[str, str]:
    """Return what an answer's headers say of a key's limits, as OpenAI's do."""
    lines: dict[str, str] = {}
    for unit, use in (("requests", taken.requests), ("tokens", taken.tokens)):
        if use is not None:
            lines[f"x-ratelimit-limit-{unit}"] = str(use.limit)
            lines[f"x-ratelimit-remaining-{unit}"] = str(use.remaining)
            lines[f"x-ratelimit-reset-{unit}"] = _span(use.full_s)
    return lines


def rate_limit_error(key: StoredKey, taken: LimitDecision, requests: int, tokens: int) -> ServingError:
    """Return what is told to a key that has to wait."""
    asked = {"tokens": (taken.tokens, tokens), "requests": (taken.requests, requests)}
    refused = [(unit, use, amount) for unit, (use, amount) in asked.items() if use and use.wait_s != 0.0]
    unit, use, amount = max(refused, key=lambda each: math.inf if each[1].wait_s is None else each[1].wait_s)
    told = (
        f"rate limit reached for key {key.name!r} in {unit} per minute: limit {use.limit}, used {use.used}, "
        f"requested {amount}. "
    )
    if use.wait_s is None:
        told += f"A request of more than {use.limit} is never served; ask for a shorter answer, or less."
        headers = {"x-should-retry": "false"}
    else:
        seconds = max(1, math.ceil(use.wait_s))
        told += f"Try again in {seconds} s."
        headers = {"retry-after": str(seconds)}
    return ServingError(429, told, None, "rate_limit_exceeded", unit, headers)


def _span(seconds: float) -> str:
    """Return a time as OpenAI writes it: ``0s``, ``740ms``, ``6m0s``."""
    if 0 < seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
