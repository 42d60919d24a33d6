"""The queue of one deployment: the order and time in which its requests are dispatched.

A request that need not wait is dispatched at once. The others are queued. Only the first in the queue sleeps;
when it leaves the queue, dispatched or cancelled, it wakes the next one.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from specclient.http_transport import retry
from specclient.http_transport.pacing import limit_headers
from specclient.http_transport.pacing.bucket import RateLimitBucket
from specclient.http_transport.pacing.concurrency import ConcurrencyLimit, QueueWaiter
from specclient.types.limit import DeploymentLimit

_SPREAD = 0.25
_MAX_SPREAD_S = 5.0


@dataclass(slots=True)
class _RetryAfterPause:
    """A pause that a deployment has asked for.

    Attributes:
        since, until: its start and end.
        longest_s: the longest delay requested by one of its refusals.
    """

    since: float = -math.inf
    until: float = -math.inf
    longest_s: float = 0.0

    @property
    def waiters_until(self) -> float:
        """When the last of the requests that waited for its end is dispatched."""
        return self.until + min(_SPREAD * self.longest_s, _MAX_SPREAD_S)

    def lengthen(self, seconds: float, now: float) -> None:
        """Extend the pause by another refusal, to at most twice the longest delay asked for."""
        self.longest_s = max(self.longest_s, seconds)
        self.until = max(self.until, min(now + seconds, self.since + 2 * self.longest_s))


class QueuedRequest(QueueWaiter):
    """A request in the queue.

    Args:
        cost: the tokens it will use.
        queued_at: when it was queued.
        learned_s: the queue's total wait for learned limits up to then, in seconds.
        patient: whether it waits for learned limits.
    """

    __slots__ = ("cost", "learned_s", "patient", "queued_at")

    def __init__(self, cost: float, queued_at: float, learned_s: float, *, patient: bool) -> None:
        super().__init__()
        self.cost = cost
        self.queued_at = queued_at
        self.learned_s = learned_s
        self.patient = patient


class DeploymentQueue:
    """The rate limits, concurrency limit and queue of one deployment. All methods need ``lock`` to be held.

    Args:
        limit: the limit that the user has set.
        now: seconds of the transport's clock.
        random: returns a number from [0, 1); spreads the requests that waited for the end of a pause.

    Attributes:
        slots: the limit of concurrent requests.
        lock: held while a method is called.
        buckets: the rate limits by unit and source: ``set`` by the user, or a header's name.
        requests, tokens: the requests dispatched so far, and their tokens.
        mean_tokens: the mean tokens of a call.
        used_at: when the last request arrived.
    """

    def __init__(self, limit: DeploymentLimit | None, now: float, random: Callable[[], float]) -> None:
        limit = limit or DeploymentLimit()
        self.slots = ConcurrencyLimit(limit.concurrent)
        self.lock = threading.Lock()
        self.buckets: dict[tuple[limit_headers.LimitUnit, str], RateLimitBucket] = {}
        amounts: dict[limit_headers.LimitUnit, float | None] = {
            "requests": limit.requests_per_minute,
            "tokens": limit.tokens_per_minute,
        }
        for unit, amount in amounts.items():
            if amount is not None:
                self.buckets[unit, "set"] = RateLimitBucket(amount, 60.0, steady=True, now=now)
        self.requests = 0
        self.tokens = 0.0
        self.mean_tokens = 0.0
        self.used_at = now
        self._random = random
        self._queue: OrderedDict[QueuedRequest, None] = OrderedDict()
        self._queued_tokens = 0.0
        self._pause = self._before = _RetryAfterPause()
        self._next_at = -math.inf  # when the next request after a pause may be dispatched
        self._learned_s = 0.0  # total seconds waited for learned limits, by the first in the queue
        self._learning = math.inf, math.inf  # the part of the first one's sleep due to learned limits

    def is_clear(self, now: float) -> bool:
        """Return whether a new request need not wait: no queue, no limits, no pause."""
        return not self._queue and not self.buckets and now >= self._pause.until

    def is_idle(self, now: float) -> bool:
        """Return whether nothing runs or waits, and dropping the queue breaks no limit set by the user."""
        own = [bucket for (_, source), bucket in self.buckets.items() if source == "set"]
        busy = self._queue or self.slots.running or self.slots.waiting or now < self._pause.until
        return not busy and all(bucket.is_full(now) for bucket in own)

    def expected_wait(self, cost: float, now: float) -> tuple[float, bool]:
        """Return the seconds that a new request would wait, and whether it waits for learned limits.

        It does not wait for them if that took more than :data:`retry.LONGEST_DELAY_S`. It is then sent, and
        the server may refuse it.
        """
        self._drop_lost()
        own, learned = self._due(
            cost, now, self._pause_of(now, now).until, len(self._queue), self._queued_tokens
        )
        if learned - own > retry.LONGEST_DELAY_S:
            return own - now, False
        behind = math.ulp(0.0) if self._queue else 0.0  # requests in the queue go first
        return max(own - now, learned - now, behind), True

    def enqueue(self, cost: float, now: float, *, patient: bool) -> QueuedRequest:
        """Append a request to the queue."""
        queued = QueuedRequest(cost, now, self._learned_s, patient=patient)
        self._queue[queued] = None
        self._queued_tokens += cost
        if len(self._queue) == 1:
            queued.wake()
        return queued

    def remaining_wait(self, queued: QueuedRequest, now: float) -> float:
        """Return the seconds that the first request still waits. At 0 or less it may be dispatched."""
        self._settle(now)
        own, learned = self._due(queued.cost, now, self._pause_of(queued.queued_at, now).until)
        left = retry.LONGEST_DELAY_S - (self._learned_s - queued.learned_s) if queued.patient else 0.0
        until = max(own, min(learned, own + max(0.0, left)))
        self._learning = own, until
        return until - now

    def dispatch(self, queued: QueuedRequest, now: float) -> None:
        """Remove the first request from the queue, deduct its cost, and wake the next one."""
        self.leave(queued, now)
        self.take(queued.cost)
        pause = self._pause_of(queued.queued_at, now)
        left = pause.waiters_until - now
        if self._queue and now >= pause.until and left > 0:  # on average, evenly spaced
            self._next_at = now + min(left, 2 * self._random() * left / len(self._queue))

    def leave(self, queued: QueuedRequest, now: float) -> None:
        """Remove a request from the queue; no effect if it is not queued."""
        if queued not in self._queue:
            return
        first = next(iter(self._queue)) is queued
        del self._queue[queued]
        self._queued_tokens = self._queued_tokens - queued.cost if self._queue else 0.0
        if first:
            self._settle(now)
            self._wake_first()

    def take(self, cost: float) -> None:
        """Deduct the cost of a dispatched request."""
        self._count(1, cost)

    def refund(self, cost: float) -> None:
        """Restore the cost of a request that was not sent after all."""
        self._count(-1, -cost)

    def pause(self, seconds: float, now: float) -> None:
        """Dispatch no request for ``seconds``; afterwards spread the waiting ones over a quarter of that.

        Requests that a previous pause has delayed are not delayed again until all of those are dispatched,
        and for that pause's length after it. Otherwise the refusal of the first of them would stop all
        others, again and again.
        """
        if now >= self._pause.until:
            self._before, self._pause = self._pause, _RetryAfterPause(now)
        self._pause.lengthen(seconds, now)

    def _pause_of(self, queued_at: float, now: float) -> _RetryAfterPause:
        before = self._before
        # The request that was refused last returns from its pause just after the others.
        passed = queued_at < before.waiters_until and now < before.waiters_until + before.longest_s
        return before if passed else self._pause

    def _due(
        self, cost: float, now: float, paused_until: float, requests: int = 0, tokens: float = 0.0
    ) -> tuple[float, float]:
        """Return when the user's limits, and when learned limits, permit a request behind others."""
        own, learned = now, max(now, paused_until, self._next_at)
        for (unit, source), bucket in self.buckets.items():
            at = bucket.ready(max(1.0, _share(unit, 1, cost)), now, _share(unit, requests, tokens))
            if source == "set":
                own = max(own, at)
            else:
                learned = max(learned, at)
        return own, learned

    def _settle(self, now: float) -> None:
        begin, end = self._learning
        if now > begin:
            self._learned_s += min(now, end) - begin
        self._learning = math.inf, math.inf

    def _count(self, requests: int, cost: float) -> None:
        self.requests += requests
        self.tokens += cost
        for (unit, _), bucket in self.buckets.items():
            bucket.take(_share(unit, requests, cost))

    def _wake_first(self) -> None:
        while self._queue and not next(iter(self._queue)).wake_threadsafe():
            self._drop_first()

    def _drop_lost(self) -> None:
        """Drop requests at the head of the queue whose event loop no longer runs."""
        if self._queue and not next(iter(self._queue)).loop.is_running():
            self._drop_first()
            self._wake_first()

    def _drop_first(self) -> None:
        queued, _ = self._queue.popitem(last=False)
        self._queued_tokens -= queued.cost


def _share(unit: limit_headers.LimitUnit, requests: int, tokens: float) -> float:
    """Return the cost of requests in a bucket's unit; 0 for tokens that are only known after the call."""
    return requests if unit == "requests" else tokens if unit == "tokens" else 0.0
