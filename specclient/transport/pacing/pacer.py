"""Turn what is known of a deployment's limits into the moment at which each request may set out."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from specclient.errors import APIError, APIStatusError
from specclient.runtime.forks import register_fork_reset
from specclient.transport import retry
from specclient.transport.pacing import limit_headers
from specclient.transport.pacing.bucket import RateLimitBucket
from specclient.transport.pacing.queue import DeploymentQueue, QueuedRequest
from specclient.types.limit import DeploymentLimit

_OVERLOAD = frozenset({429, 503, 529})
_MEMORY = 0.1  # weight of the newest call in the mean of tokens a call uses
_MOST_LANES = 4096  # names come from callers; with more of them, those not used for longest are forgotten


class DeadlineChecker(Protocol):
    """Who asks for a turn: knows how long it may take."""

    def check_wait(self, seconds: float) -> None:
        """Raise DeadlineExceededError where a wait of ``seconds`` would end too late."""
        ...


class PacingPermit:
    """A request on its way, from the moment it may set out until its answer has been read."""

    __slots__ = ("_gone", "_lane", "requests", "sent", "tokens")

    def __init__(self, lane: DeploymentQueue, sent: float) -> None:
        self._lane = lane
        self._gone = False
        self.sent = sent  # when it set out
        self.requests = lane.requests  # set out until then, itself among them
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
        limits: Mapping[str, DeploymentLimit] | None = None,
    ) -> None:
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._limits = dict(limits or {})
        self._lanes: dict[str, DeploymentQueue] = {}
        self._lock = threading.Lock()  # of new lanes
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """In a forked child: its lanes are empty, whatever the parent has under way."""
        self._lanes = {}
        self._lock = threading.Lock()

    async def enter(self, deployment: str, tokens: int | None, caller: DeadlineChecker) -> PacingPermit:
        """Return when a request to ``deployment`` may set out.

        Because of what answers have told, nobody waits for more than ``retry.LONGEST_DELAY_S`` in all; for
        limits the user has set, however long.

        Args:
            tokens: it will use; None takes the mean of those before it.
            caller: asked before each wait, which its deadline may forbid.
        """
        lane = self._lane(deployment)
        cost = lane.mean_tokens if tokens is None else float(tokens)
        place = None
        with lane.lock:
            lane.used_at = now = self._clock()
            seconds, patient = (0.0, True) if lane.is_clear(now) else lane.ask(cost, now)
            if seconds > 0:
                caller.check_wait(seconds)
                place = lane.join(cost, now, patient=patient)
            elif patient:  # one that is sent in spite of a limit takes nothing from those who wait for it
                lane.take(cost)
            turn = PacingPermit(lane, now)
        if place is not None:
            turn = await self._queue(lane, place, caller)
        if not lane.slots.try_take():
            try:
                await lane.slots.take()
            except BaseException:
                if patient or place is not None:
                    with lane.lock:
                        lane.forgo(cost)
                raise
        return turn

    async def _queue(
        self, lane: DeploymentQueue, place: QueuedRequest, caller: DeadlineChecker
    ) -> PacingPermit:
        """Wait for one's turn in the queue, and set out."""
        now = place.asked_at
        try:
            await place.future
            now = self._clock()
            while True:
                with lane.lock:
                    seconds = lane.wait_of(place, now)
                    if seconds <= 0:
                        lane.set_out(place, now)
                        return PacingPermit(lane, now)
                caller.check_wait(seconds)
                await self._sleep(seconds)
                now = max(self._clock(), now + seconds)
        except BaseException:
            with lane.lock:
                lane.leave(place, max(now, self._clock()))
            raise

    def served(self, deployment: str, turn: PacingPermit, headers: Mapping[str, str]) -> None:
        """Learn from an answer."""
        lane = self._lane(deployment)
        self._learn(lane, turn, headers)
        lane.slots.served()

    def refused(
        self, deployment: str, turn: PacingPermit, error: APIError, headers: Mapping[str, str]
    ) -> None:
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

    def _lane(self, deployment: str) -> DeploymentQueue:
        return self._lanes.get(deployment) or self._new_lane(deployment)

    def _new_lane(self, deployment: str) -> DeploymentQueue:
        limit = self._limits.get(deployment.partition(" #")[0])  # what follows marks an account
        with self._lock:
            now = self._clock()
            if len(self._lanes) >= _MOST_LANES:
                idle = [(lane.used_at, name) for name, lane in self._lanes.items() if lane.is_idle(now)]
                for _, name in sorted(idle)[: _MOST_LANES // 2]:
                    del self._lanes[name]
            return self._lanes.setdefault(deployment, DeploymentQueue(limit, now, self._random))

    def _learn(self, lane: DeploymentQueue, turn: PacingPermit, headers: Mapping[str, str]) -> None:
        for seen in limit_headers.read_rate_limits(headers, self._now):
            row, now = seen.row, self._clock()
            with lane.lock:
                bucket = lane.buckets.get((row.unit, row.remaining))
                if bucket is None:
                    bucket = RateLimitBucket(seen.capacity, row.period_s, steady=row.steady, now=now)
                    lane.buckets[row.unit, row.remaining] = bucket
                if bucket.observe(seen.capacity, seen.left, seen.full_in, sent=turn.sent, now=now):
                    later = lane.requests - turn.requests, lane.tokens - turn.tokens
                    bucket.take({"requests": later[0], "tokens": later[1], "part": 0.0}[row.unit])
