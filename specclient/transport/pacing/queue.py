"""Turn one deployment's limits and refusals into the order and the moments in which its callers set out.

Who need not wait takes what it costs and goes. The others stand in a queue, of which only the first one
sleeps and, once it has set out, wakes the next: so whoever leaves the queue leaves no hole in it.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from specclient.transport import retry
from specclient.transport.pacing import limit_headers
from specclient.transport.pacing.bucket import RateLimitBucket
from specclient.transport.pacing.concurrency import ConcurrencyLimit, QueueWaiter
from specclient.types.limit import DeploymentLimit

_SPREAD = 0.25
_LONGEST_SPREAD_S = 5.0


@dataclass(slots=True)
class _RetryAfterPause:
    """A pause that a deployment has asked for.

    Attributes:
        since, until: when it begins and ends.
        longest_s: the longest pause that one of its refusals has asked for.
    """

    since: float = -math.inf
    until: float = -math.inf
    longest_s: float = 0.0

    @property
    def crowd_until(self) -> float:
        """When the last of those whom it has gathered sets out."""
        return self.until + min(_SPREAD * self.longest_s, _LONGEST_SPREAD_S)

    def lengthen(self, seconds: float, now: float) -> None:
        """Count one more refusal in; refusals that trickle in at most double the longest pause."""
        self.longest_s = max(self.longest_s, seconds)
        self.until = max(self.until, min(now + seconds, self.since + 2 * self.longest_s))


class QueuedRequest(QueueWaiter):
    """One caller's place in the queue.

    Args:
        cost: tokens it will use.
        asked_at: when it came.
        learned_s: what the queue had waited by then because of what was learned.
        patient: whether it waits for what was learned at all.
    """

    __slots__ = ("asked_at", "cost", "learned_s", "patient")

    def __init__(self, cost: float, asked_at: float, learned_s: float, *, patient: bool) -> None:
        super().__init__()
        self.cost = cost
        self.asked_at = asked_at
        self.learned_s = learned_s
        self.patient = patient


class DeploymentQueue:
    """One deployment: its buckets, its slots and its queue; every method is called with ``lock`` held.

    Args:
        limit: what the user knows of it.
        now: seconds of the transport's clock.
        random: draws from [0, 1); spreads those whom a hold has gathered.

    Attributes:
        requests, tokens: that have set out so far.
        mean_tokens: of a call.
        used_at: when somebody came last.
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
        self._hold = self._before = _RetryAfterPause()
        self._next_at = -math.inf  # when the next one of a crowd may go
        self._learned_s = 0.0  # waited so far because of what was learned, by one after the other
        self._learning = math.inf, math.inf  # the part of the first one's sleep that is due to it

    def is_clear(self, now: float) -> bool:
        """Tell whether nothing is known that anybody would have to wait for."""
        return not self._queue and not self.buckets and now >= self._hold.until

    def is_idle(self, now: float) -> bool:
        """Tell whether nobody is under way, and forgetting the lane breaks no limit the user has set."""
        own = [bucket for (_, source), bucket in self.buckets.items() if source == "set"]
        busy = self._queue or self.slots.running or self.slots.waiting or now < self._hold.until
        return not busy and all(bucket.is_full(now) for bucket in own)

    def ask(self, cost: float, now: float) -> tuple[float, bool]:
        """Return how long a newcomer would wait, and whether it would wait for what was learned.

        More than :data:`retry.LONGEST_DELAY_S` of that it does not wait: it goes out, and hears of the limit.
        """
        self._drop_lost()
        own, learned = self._due(
            cost, now, self._hold_of(now, now).until, len(self._queue), self._queued_tokens
        )
        if learned - own > retry.LONGEST_DELAY_S:
            return own - now, False
        behind = math.ulp(0.0) if self._queue else 0.0  # whoever waits goes first
        return max(own - now, learned - now, behind), True

    def join(self, cost: float, now: float, *, patient: bool) -> QueuedRequest:
        """Take the last place in the queue."""
        place = QueuedRequest(cost, now, self._learned_s, patient=patient)
        self._queue[place] = None
        self._queued_tokens += cost
        if len(self._queue) == 1:
            place.wake()
        return place

    def wait_of(self, place: QueuedRequest, now: float) -> float:
        """Return how long the first one in the queue still waits; 0 or less lets it set out."""
        self._settle(now)
        own, learned = self._due(place.cost, now, self._hold_of(place.asked_at, now).until)
        left = retry.LONGEST_DELAY_S - (self._learned_s - place.learned_s) if place.patient else 0.0
        until = max(own, min(learned, own + max(0.0, left)))
        self._learning = own, until
        return until - now

    def set_out(self, place: QueuedRequest, now: float) -> None:
        """Let the first one in the queue go, and have the next one wait in its stead."""
        self.leave(place, now)
        self.take(place.cost)
        hold = self._hold_of(place.asked_at, now)
        left = hold.crowd_until - now
        if self._queue and now >= hold.until and left > 0:  # on average they share what is left evenly
            self._next_at = now + min(left, 2 * self._random() * left / len(self._queue))

    def leave(self, place: QueuedRequest, now: float) -> None:
        """Give a place up; those behind it move up."""
        if place not in self._queue:
            return
        first = next(iter(self._queue)) is place
        del self._queue[place]
        self._queued_tokens = self._queued_tokens - place.cost if self._queue else 0.0
        if first:
            self._settle(now)
            self._wake_first()

    def take(self, cost: float) -> None:
        """Count one that sets out."""
        self._count(1, cost)

    def forgo(self, cost: float) -> None:
        """Take back one that was counted, and was not sent after all."""
        self._count(-1, -cost)

    def hold(self, seconds: float, now: float) -> None:
        """Let nobody go for ``seconds``; afterwards the crowd sets out over a quarter of that.

        Whom the hold before has let go is not held again before the crowd is gone, and for as long once more:
        or else the refusal of the first one of a crowd would stop all others, and so on through the crowd.
        """
        if now >= self._hold.until:
            self._before, self._hold = self._hold, _RetryAfterPause(now)
        self._hold.lengthen(seconds, now)

    def _hold_of(self, asked_at: float, now: float) -> _RetryAfterPause:
        before = self._before
        # Until the crowd is gone: who was refused last comes back from its pause just after the others.
        let_go = asked_at < before.crowd_until and now < before.crowd_until + before.longest_s
        return before if let_go else self._hold

    def _due(
        self, cost: float, now: float, held_until: float, requests: int = 0, tokens: float = 0.0
    ) -> tuple[float, float]:
        """Return when the user's limits, and when all that was learned, let somebody go, behind others."""
        own, learned = now, max(now, held_until, self._next_at)
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
        while self._queue and not next(iter(self._queue)).call():
            self._drop_first()

    def _drop_lost(self) -> None:
        """Pass over those at the head of the queue whose loop was left standing with them."""
        if self._queue and not next(iter(self._queue)).loop.is_running():
            self._drop_first()
            self._wake_first()

    def _drop_first(self) -> None:
        place, _ = self._queue.popitem(last=False)
        self._queued_tokens -= place.cost


def _share(unit: limit_headers.LimitUnit, requests: int, tokens: float) -> float:
    """Return what requests take of a bucket; of a part of the tokens that is known only afterwards."""
    return requests if unit == "requests" else tokens if unit == "tokens" else 0.0
