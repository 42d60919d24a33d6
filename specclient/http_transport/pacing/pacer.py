"""Pacing: delays requests until the rate limits of their deployment permit them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from specclient.errors import APIError, APIStatusError
from specclient.http_transport import retry
from specclient.http_transport.pacing import limit_headers
from specclient.http_transport.pacing.bucket import RateLimitBucket
from specclient.http_transport.pacing.queue import DeploymentQueue, QueuedRequest
from specclient.runtime.forks import register_fork_reset
from specclient.types.limit import DeploymentLimit

_OVERLOAD = frozenset({429, 503, 529})
_NEWEST_WEIGHT = 0.1  # of the newest call in the mean of tokens per call
_MAX_QUEUES = 4096  # bounded because names come from callers; the least recently used ones are dropped


class DeadlineChecker(Protocol):
    """The caller of :meth:`Pacer.enter`, which may have a deadline."""

    def check_wait(self, seconds: float) -> None:
        """Raise DeadlineExceededError if a wait of ``seconds`` would end too late."""
        ...


class PacingPermit:
    """The permit of one request, from its dispatch until its response has been read."""

    __slots__ = ("_gone", "_queue", "requests", "sent", "tokens")

    def __init__(self, queue: DeploymentQueue, sent: float) -> None:
        self._queue = queue
        self._gone = False
        self.sent = sent  # when it was dispatched
        self.requests = queue.requests  # dispatched until then, including this one
        self.tokens = queue.tokens

    def leave(self) -> None:
        """Return the permit; safe to call twice."""
        if not self._gone:
            self._gone = True
            self._queue.slots.release()


class Pacer:
    """Dispatches the requests to each deployment in order, when its rate limits permit.

    While no limit is known, this costs a dictionary look-up and a counter.

    Args:
        clock: returns monotonic seconds.
        now: returns seconds since the epoch, for limits that reset at a given time.
        sleep: waits for seconds.
        random: returns a number from [0, 1); spreads the requests that waited for the end of a pause.
        limits: the user's limits by deployment; limits in response headers are added.
        learns: whether requests wait for limits and delays that responses report.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        limits: Mapping[str, DeploymentLimit] | None = None,
        learns: bool = True,
    ) -> None:
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._limits = dict(limits or {})
        self._learns = learns
        self._queues: dict[str, DeploymentQueue] = {}
        self._lock = threading.Lock()  # held while a queue is created
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Drop all queues in a forked child, because the parent's requests run in the parent."""
        self._queues = {}
        self._lock = threading.Lock()

    async def enter(self, deployment: str, tokens: int | None, caller: DeadlineChecker) -> PacingPermit:
        """Wait until a request to ``deployment`` may be sent, and return its permit.

        A request waits at most ``retry.LONGEST_DELAY_S`` for limits and pauses learned from responses, and
        without a bound for limits that the user has set.

        Args:
            deployment: ``provider/model``.
            tokens: an estimate of the tokens it will use; None takes the mean of earlier calls.
            caller: its ``check_wait`` is called before each wait.
        """
        queue = self._queue(deployment)
        cost = queue.mean_tokens if tokens is None else float(tokens)
        queued = None
        with queue.lock:
            queue.used_at = now = self._clock()
            seconds, patient = (0.0, True) if queue.is_clear(now) else queue.expected_wait(cost, now)
            if seconds > 0:
                caller.check_wait(seconds)
                queued = queue.enqueue(cost, now, patient=patient)
            elif patient:  # a request that is sent in spite of a limit does not delay those that wait for it
                queue.take(cost)
            permit = PacingPermit(queue, now)
        if queued is not None:
            permit = await self._wait_in_queue(queue, queued, caller)
        if not queue.slots.try_acquire():
            try:
                await queue.slots.acquire()
            except BaseException:
                if patient or queued is not None:
                    with queue.lock:
                        queue.refund(cost)
                raise
        return permit

    async def _wait_in_queue(
        self, queue: DeploymentQueue, queued: QueuedRequest, caller: DeadlineChecker
    ) -> PacingPermit:
        """Wait until the request is first in the queue and the limits permit it, then dispatch it."""
        now = queued.queued_at
        try:
            await queued.future
            now = self._clock()
            while True:
                with queue.lock:
                    seconds = queue.remaining_wait(queued, now)
                    if seconds <= 0:
                        queue.dispatch(queued, now)
                        return PacingPermit(queue, now)
                caller.check_wait(seconds)
                await self._sleep(seconds)
                now = max(self._clock(), now + seconds)
        except BaseException:
            with queue.lock:
                queue.leave(queued, max(now, self._clock()))
            raise

    def served(self, deployment: str, permit: PacingPermit, headers: Mapping[str, str]) -> None:
        """Update the limits of a deployment from a successful response."""
        if not self._learns:
            return
        queue = self._queue(deployment)
        self._learn(queue, permit, headers)
        queue.slots.served()

    def refused(
        self, deployment: str, permit: PacingPermit, error: APIError, headers: Mapping[str, str]
    ) -> None:
        """Update the limits from a failure: pause for the delay it asks for, or lower the concurrency."""
        if not self._learns:
            return
        queue = self._queue(deployment)
        self._learn(queue, permit, headers)
        if not isinstance(error, APIStatusError) or error.status_code not in _OVERLOAD:
            return
        if retry.is_quota_spent(error):
            return
        delay = retry.delay_of(error, self._now())
        if delay is None:
            queue.slots.refused(sent=permit.sent, now=self._clock())
        elif 0 < delay <= retry.LONGEST_DELAY_S:
            with queue.lock:
                queue.pause(delay, self._clock())

    def used(self, deployment: str, estimate: int | None, tokens: int) -> None:
        """Record the tokens that a call has used, which was paced with ``estimate`` tokens."""
        queue = self._queue(deployment)
        with queue.lock:
            charged = queue.mean_tokens if estimate is None else float(estimate)
            queue.mean_tokens += (tokens - queue.mean_tokens) * (_NEWEST_WEIGHT if queue.mean_tokens else 1.0)
            if (own := queue.buckets.get(("tokens", "set"))) is not None:
                own.take(tokens - charged)  # limits learned from headers include them already

    def _queue(self, deployment: str) -> DeploymentQueue:
        return self._queues.get(deployment) or self._new_queue(deployment)

    def _new_queue(self, deployment: str) -> DeploymentQueue:
        limit = self._limits.get(deployment.partition(" #")[0])  # the rest tells accounts apart
        with self._lock:
            now = self._clock()
            if len(self._queues) >= _MAX_QUEUES:
                idle = [(queue.used_at, name) for name, queue in self._queues.items() if queue.is_idle(now)]
                for _, name in sorted(idle)[: _MAX_QUEUES // 2]:
                    del self._queues[name]
            return self._queues.setdefault(deployment, DeploymentQueue(limit, now, self._random))

    def _learn(self, queue: DeploymentQueue, permit: PacingPermit, headers: Mapping[str, str]) -> None:
        for state in limit_headers.read_rate_limits(headers, self._now):
            row, now = state.row, self._clock()
            with queue.lock:
                bucket = queue.buckets.get((row.unit, row.remaining))
                if bucket is None:
                    bucket = RateLimitBucket(state.capacity, row.period_s, steady=row.steady, now=now)
                    queue.buckets[row.unit, row.remaining] = bucket
                if bucket.observe(state.capacity, state.left, state.full_in, sent=permit.sent, now=now):
                    # Deduct the requests that were dispatched after this one.
                    requests, tokens = queue.requests - permit.requests, queue.tokens - permit.tokens
                    bucket.take({"requests": requests, "tokens": tokens, "partial_tokens": 0.0}[row.unit])
