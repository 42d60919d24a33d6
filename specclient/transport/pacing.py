"""Turn what is known of a deployment's limits into the moment at which each request may set out."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from specclient.errors import APIError, APIStatusError
from specclient.forks import restart_in_child
from specclient.transport import limits, retry
from specclient.transport.buckets import Bucket
from specclient.transport.slots import Slots
from specclient.types.limit import Limit

_SPREAD = 0.25
_LONGEST_SPREAD_S = 5.0
_OVERLOAD = frozenset({429, 503, 529})
_MEMORY = 0.1  # weight of the newest call in the mean of tokens a call uses


class Waiting(Protocol):
    """Who asks for a turn: knows how long it may take."""

    def check_wait(self, seconds: float) -> None:
        """Raise DeadlineExceededError where a wait of ``seconds`` would end too late."""
        ...


class Lane:
    """One deployment: its buckets, its slots, and the schedule of those who wait.

    The schedule is a reservation each (see :mod:`specclient.transport.buckets`). A hold freezes it: every
    promised instant, and those promised later, move back by the hold's length, so nobody overtakes anybody.
    """

    def __init__(self, limit: Limit | None, now: float) -> None:
        limit = limit or Limit()
        self.slots = Slots(limit.concurrent)
        self.lock = threading.Lock()
        self.buckets: dict[tuple[limits.Unit, str], Bucket] = {}
        self.patient = False  # waits for limits the user has set, however long
        amounts: dict[limits.Unit, float | None] = {
            "requests": limit.requests_per_minute,
            "tokens": limit.tokens_per_minute,
        }
        for unit, amount in amounts.items():
            if amount is not None:
                self.buckets[unit, "set"] = Bucket(amount, 60.0, steady=True, now=now)
                self.patient = True
        self.requests = 0  # sent or promised so far
        self.tokens = 0.0
        self.mean_tokens = 0.0
        self.sleeping = 0
        self.frozen_s = 0.0  # all holds so far, laid end to end
        self._last = now  # the latest instant promised
        self._held_until = now
        self._crowded_until = now
        self._gap_s = 0.0

    def promise(self, cost: float, now: float, random: Callable[[], float]) -> float:
        """Return the instant at which a request of ``cost`` tokens may set out."""
        start = max(now, self._last, self._held_until)
        if self._gap_s and start < self._crowded_until:
            start += random() * self._gap_s
        for (unit, _), bucket in self.buckets.items():
            start = max(start, bucket.ready(max(1.0, _share(unit, cost)), now))
        if start - now > retry.LONGEST_DELAY_S and not self.patient:
            return now  # it goes out, and its caller hears of the limit instead of hanging
        return start

    def keep(self, start: float, cost: float) -> None:
        """Make a promise: take the cost, and let nobody set out before ``start`` any more."""
        self._last = max(self._last, start)
        self._count(1, cost)

    def forgo(self, cost: float) -> None:
        """Take a promise back; those made after it stay."""
        self._count(-1, -cost)

    def _count(self, requests: int, cost: float) -> None:
        self.requests += requests
        self.tokens += cost
        for (unit, _), bucket in self.buckets.items():
            bucket.take(requests if unit == "requests" else _share(unit, cost))

    def hold(self, seconds: float, now: float) -> None:
        """Freeze the schedule for ``seconds``; afterwards its crowd sets out over a quarter of that."""
        until = now + seconds
        if until <= self._held_until:
            return
        self.frozen_s += until - max(now, self._held_until)
        self._last = max(self._last, now) + until - max(now, self._held_until)
        self._held_until = until
        crowd = self.slots.running + self.slots.waiting + self.sleeping
        spread = min(_SPREAD * seconds, _LONGEST_SPREAD_S)
        self._gap_s = 2 * spread / crowd if crowd > 1 else 0.0  # on average half of it passes between two
        self._crowded_until = until + spread


def _share(unit: limits.Unit, cost: float) -> float:
    """Return what a request takes of a bucket; of a part of the tokens that is known only afterwards."""
    return 1.0 if unit == "requests" else cost if unit == "tokens" else 0.0


class Turn:
    """A request on its way, from the moment it may set out until its answer has been read."""

    __slots__ = ("_gone", "_lane", "requests", "sent", "tokens")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._gone = False
        self.sent = 0.0  # when it set out
        self.requests = lane.requests  # promised until then, itself among them; later ones set out later
        self.tokens = lane.tokens

    def leave(self) -> None:
        """End it; safe to call twice."""
        if not self._gone:
            self._gone = True
            self._lane.slots.give()


class Pacer:
    """Lets each request to a deployment set out when its limits allow, in the order of asking.

    Where no limit is known that costs a dictionary lookup and a count.

    Args:
        limits: what the user knows, by deployment; the answers' headers add to it.
        clock: seconds, monotonic. ``now``: seconds since the epoch, for limits that reset at an instant.
        sleep: waits for seconds.
        random: draws from [0, 1); spreads the callers that a hold has gathered.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._limits = dict(limits or {})
        self._lanes: dict[str, Lane] = {}
        restart_in_child(self)

    def start_afresh(self) -> None:
        """In a forked child: its lanes are empty, whatever the parent has under way."""
        self._lanes = {}

    async def enter(self, deployment: str, tokens: int | None, caller: Waiting) -> Turn:
        """Return when a request to ``deployment`` may set out.

        Args:
            tokens: it will use; None takes the mean of those before it.
            caller: asked before each wait, which its deadline may forbid.
        """
        lane = self._lane(deployment)
        cost = lane.mean_tokens if tokens is None else float(tokens)
        with lane.lock:
            now = self._clock()
            start = lane.promise(cost, now, self._random)
            if start > now:
                caller.check_wait(start - now)
            lane.keep(start, cost)
            turn = Turn(lane)
            frozen = lane.frozen_s
        turn.sent = now
        try:
            if start > now:
                await self._sleep_until_due(lane, start - now, frozen, caller)
                turn.sent = self._clock()
            if not lane.slots.try_take():
                await lane.slots.take()
        except BaseException:
            with lane.lock:
                lane.forgo(cost)
            raise
        return turn

    async def _sleep_until_due(self, lane: Lane, seconds: float, frozen: float, caller: Waiting) -> None:
        with lane.lock:
            lane.sleeping += 1
        try:
            while seconds > 0:
                await self._sleep(seconds)
                seconds, frozen = lane.frozen_s - frozen, lane.frozen_s  # a hold that came meanwhile
                caller.check_wait(seconds)
        finally:
            with lane.lock:
                lane.sleeping -= 1

    def served(self, deployment: str, turn: Turn, headers: Mapping[str, str]) -> None:
        """Learn from an answer."""
        lane = self._lane(deployment)
        self._learn(lane, turn, headers)
        lane.slots.served()

    def refused(self, deployment: str, turn: Turn, error: APIError, headers: Mapping[str, str]) -> None:
        """Learn from a refusal: hold everybody for as long as it asks; else let fewer in at once."""
        lane = self._lane(deployment)
        self._learn(lane, turn, headers)
        if not isinstance(error, APIStatusError) or error.status_code not in _OVERLOAD:
            return
        if retry.is_quota_spent(error):
            return
        delay = retry.delay_of(error, self._now())
        if delay is None:
            lane.slots.refused(sent=turn.sent, now=self._clock())
        elif 0 < delay <= retry.LONGEST_DELAY_S:
            with lane.lock:
                lane.hold(delay, self._clock())

    def used(self, deployment: str, estimate: int | None, tokens: int) -> None:
        """Learn how many tokens a call has used, which was paced as one of ``estimate``."""
        lane = self._lane(deployment)
        with lane.lock:
            charged = lane.mean_tokens if estimate is None else float(estimate)
            lane.mean_tokens += (tokens - lane.mean_tokens) * (_MEMORY if lane.mean_tokens else 1.0)
            if (own := lane.buckets.get(("tokens", "set"))) is not None:
                own.take(tokens - charged)  # those learned from headers have counted it already

    def _lane(self, deployment: str) -> Lane:
        lane = self._lanes.get(deployment)
        if lane is None:
            limit = self._limits.get(deployment.partition(" #")[0])  # what follows marks an account
            lane = self._lanes.setdefault(deployment, Lane(limit, self._clock()))
        return lane

    def _learn(self, lane: Lane, turn: Turn, headers: Mapping[str, str]) -> None:
        for seen in limits.read(headers, self._now):
            row, now = seen.row, self._clock()
            with lane.lock:
                bucket = lane.buckets.get((row.unit, row.remaining))
                if bucket is None:
                    bucket = Bucket(seen.capacity, row.period_s, steady=row.steady, now=now)
                    lane.buckets[row.unit, row.remaining] = bucket
                if bucket.observe(seen.capacity, seen.left, seen.full_in, sent=turn.sent, now=now):
                    later = lane.requests - turn.requests, lane.tokens - turn.tokens
                    bucket.take({"requests": later[0], "tokens": later[1], "part": 0.0}[row.unit])
