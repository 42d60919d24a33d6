"""The failover executor: serves a routed call by one or more attempts.

The first attempt goes to the route that was decided. If it fails, the next route that can help is tried
(:mod:`specclient.call.failover.causes`); if it is slow, a hedge may be started on another route
(:mod:`specclient.call.failover.hedge`); if its stream breaks off, another route continues the text
(:mod:`specclient.call.failover.stream`). Each attempt is recorded in a ledger row of its own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from specclient.call.failover.hedge import (
    HedgedAnswer,
    HedgedAttempt,
    HedgedStream,
    HedgeQuota,
    has_side_effects,
    race,
)
from specclient.call.failover.routed_call import Attempt, RoutedCall
from specclient.call.failover.splice import has_output
from specclient.call.failover.stream import AttemptStream, FailoverStream, wait_for_output
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.call.subcalls import Subcall
from specclient.errors import OpenAIError
from specclient.prices.prices import Prices
from specclient.routing.choose.session_affinity import SessionAffinity
from specclient.routing.router import Router
from specclient.types.call import Call, MeteredModel
from specclient.types.request import Request

T = TypeVar("T")
R = TypeVar("R", bound=HedgedAttempt)

#: Attempts with their results or failures.
Outcomes = Sequence[tuple[Attempt, T | OpenAIError]]


class FailoverPipeline(Protocol):
    """The methods of :class:`specclient.call.pipeline.Pipeline` that serve a request at one destination."""

    router: Router

    async def ensure_ready(self, kind: str) -> None:
        """Prepare what requests of a kind need before the first one."""
        ...

    async def attempt(self, request: Request, subcall: Subcall) -> CallResult:
        """Serve a request and return its complete answer."""
        ...

    async def attempt_stream(self, request: Request, subcall: Subcall) -> AsyncStream[Any]:
        """Serve a request as a stream; return once the answer has begun."""
        ...

    async def send_bytes(self, request: Request, subcall: Subcall) -> AsyncStream[bytes]:
        """Serve a request as the bytes of its body; return once the answer has begun."""
        ...


class FailoverState:
    """State of routed calls that a client and its copies share: the hedge quota and session affinity.

    Args:
        prices: values a prompt that a route has in its cache.
        clock: monotonic seconds.
    """

    def __init__(self, prices: Prices, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.hedge_quota = HedgeQuota()
        self.sessions = SessionAffinity(prices, clock=clock)


class FailoverExecutor:
    """Serves routed calls; see the module's description.

    Args:
        pipeline: serves single attempts.
        state: shared with the client's copies.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pipeline: FailoverPipeline,
        state: FailoverState,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._hedge_quota = state.hedge_quota
        self._sessions = state.sessions

    async def execute(self, request: Request) -> CallResult:
        """Serve a request; see :meth:`specclient.call.pipeline.Pipeline.execute`."""
        call = await self._begin(request)
        undecoded: list[CallResult] = []

        async def run(attempt: Attempt) -> CallResult:
            await self._ensure_ready(attempt)
            sent = self._pipeline.attempt(*call.request_for(attempt))
            result = await (sent if call.deadline_s is None else call.with_deadline(attempt, sent))
            if result.error is not None:
                undecoded.append(result)
                raise result.error
            return result

        async def run_hedged(attempt: Attempt, delay_s: float) -> Outcomes[CallResult]:
            return await self._race(
                call,
                attempt,
                delay_s,
                start=lambda each: HedgedAnswer(run(each)),
                result=lambda answer, _: answer.ready.result(),
            )

        try:
            attempt, result = await self._run_attempts(
                call, self._hedge_delay_s(call, stream=False), run, run_hedged
            )
        except OpenAIError as error:
            undecodable = next((each for each in undecoded if each.error is error), None)
            if undecodable is None:
                raise
            error.__traceback__ = None  # its frames refer to the result that holds it: a reference cycle
            return undecodable  # for callers that want the raw response
        finally:
            undecoded.clear()
        if isinstance(result.value, MeteredModel):
            if call.has_subcalls:
                call.route = call.decision_for(attempt)
                result.value.attach_meta(call.record("ok"))
            self.note_finished(result.value.meta)
        return result

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`specclient.call.pipeline.Pipeline.stream`."""
        stream = FailoverStream(self, await self._begin(request))
        batches = stream.batches()
        http, dialect = await anext(batches)
        return AsyncStream(batches, stream.meta, http, dialect)

    async def stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request as the bytes of its body; failover ends once an answer has begun."""
        call = await self._begin(request)

        async def run(attempt: Attempt) -> AsyncStream[bytes]:
            await self._ensure_ready(attempt)
            return await self._pipeline.send_bytes(*call.request_for(attempt))

        _, stream = await self._run_attempts(call, None, run, None)
        return stream

    # For FailoverStream

    async def open_stream(
        self, call: RoutedCall, attempt: Attempt, request: Request | None = None
    ) -> AsyncStream[Any]:
        """Open an attempt's stream; see :class:`specclient.call.failover.stream.AttemptStreamOpener`."""
        await self._ensure_ready(attempt)
        sent = self._pipeline.attempt_stream(*call.request_for(attempt, request))
        return await call.with_deadline(attempt, sent)

    async def open_first(self, call: RoutedCall) -> AttemptStream:
        """Open the first stream that answers;
        see :class:`specclient.call.failover.stream.AttemptStreamOpener`."""

        def batch_has_output(batch: list[Any]) -> bool:
            return any(has_output(item) for item in batch)

        async def run(attempt: Attempt) -> AttemptStream:
            stream = await self.open_stream(call, attempt)
            if attempt.reason is None and not call.may_fail_over:
                return AttemptStream(attempt, stream, stream)
            return await wait_for_output(stream, attempt, call, batch_has_output)

        async def run_hedged(attempt: Attempt, delay_s: float) -> Outcomes[AttemptStream]:
            def start(attempt: Attempt) -> HedgedStream:
                return HedgedStream(
                    lambda: self.open_stream(call, attempt),
                    lambda step: call.with_deadline(attempt, step),
                    batch_has_output,
                )

            return await self._race(call, attempt, delay_s, start=start, result=AttemptStream.from_hedge)

        delay_s = self._hedge_delay_s(call, stream=True)
        attempt, opened = await self._run_attempts(call, delay_s, run, run_hedged)
        call.route = call.decision_for(attempt)
        return opened

    def note_finished(self, call: Call) -> None:
        """Note a finished call for session affinity."""
        if call.session is not None:
            self._sessions.note(call)

    # Attempts

    async def _begin(self, request: Request) -> RoutedCall:
        """Decide the route of a request."""
        router = self._pipeline.router
        request = router.with_strategy(request)
        await self._pipeline.ensure_ready(router.kind(request))
        decision = router.decide(request)
        session = request.options.session
        if session is not None and not decision.counts_caches:  # else it has weighed all routes' caches
            decision = self._sessions.prefer_cached_route(session, decision, router.destinations)
        return RoutedCall.begin(request, decision, router.destinations, self._clock)

    async def _ensure_ready(self, attempt: Attempt) -> None:
        if attempt.reason is not None:
            await self._pipeline.ensure_ready(attempt.to.provider)

    async def _run_attempts(
        self,
        call: RoutedCall,
        hedge_delay_s: float | None,
        run: Callable[[Attempt], Awaitable[T]],
        run_hedged: Callable[[Attempt, float], Awaitable[Outcomes[T]]] | None,
    ) -> tuple[Attempt, T]:
        """Run attempts until one succeeds; return it with its result.

        Args:
            hedge_delay_s: seconds after which the first attempt may be hedged; None for no hedge.
            run: makes one attempt.
            run_hedged: makes one attempt and, after the delay, a hedge; returns the outcome of each.

        Raises:
            OpenAIError: every attempt failed.
        """
        attempt = call.first
        while True:
            outcomes: Outcomes[T]
            if hedge_delay_s is None or run_hedged is None:
                try:
                    return attempt, await run(attempt)
                except OpenAIError as error:
                    outcomes = [(attempt, error)]
            else:
                outcomes, hedge_delay_s = await run_hedged(attempt, hedge_delay_s), None
            failure: OpenAIError | None = None
            for finished, outcome in outcomes:
                if not isinstance(outcome, OpenAIError):
                    return finished, outcome
                call.note_failure(finished, outcome)
                failure = failure or outcome
            del outcomes, outcome
            assert failure is not None
            try:
                following = await call.next_attempt(attempt, failure)
                if following is None:
                    raise call.final_error(failure)
                failure.__traceback__ = None
            finally:
                del failure  # its traceback's frame holds it: a reference cycle
            attempt = following

    # Hedging

    def _hedge_delay_s(self, call: RoutedCall, *, stream: bool) -> float | None:
        """Return the seconds after which a call may be hedged; None where it may not be."""
        policy = call.decision.policy
        share = 0.0 if policy is None else policy.hedged_share
        if not share:
            return None
        self._hedge_quota.earn(share)
        if has_side_effects(call.request) or not call.untried:
            return None
        first = call.first.to
        return first.patience_s if stream else first.latency_limit_s

    async def _race(
        self,
        call: RoutedCall,
        attempt: Attempt,
        delay_s: float,
        *,
        start: Callable[[Attempt], R],
        result: Callable[[R, Attempt], T],
    ) -> Outcomes[T]:
        """Run an attempt and, if it is slow, a hedge; return the winner's result or the failures of both.

        Args:
            delay_s: seconds after which the hedge starts.
            start: starts an attempt in a task of its own.
            result: returns the result of a successful attempt.
        """
        first = start(attempt)
        attempts = {first: attempt}

        def start_hedge() -> R | None:
            hedge = self._hedge(call, attempt, delay_s)
            if hedge is None:
                return None
            second = start(hedge)
            attempts[second] = hedge
            return second

        finished = await race(first, start_hedge, delay_s)
        return [
            (attempts[each], result(each, attempts[each]) if failure is None else _expected(failure))
            for each in finished
            for failure in (each.ready.exception(),)
        ]

    def _hedge(self, call: RoutedCall, attempt: Attempt, delay_s: float) -> Attempt | None:
        """Return the hedge to a slow attempt; None where there is no time, quota or route for one."""
        remaining_s, policy = call.remaining_s, call.decision.policy
        if policy is None or (remaining_s is not None and remaining_s <= 0):
            return None
        if not self._hedge_quota.spend(policy.hedged_share):
            return None
        other = call.take_hedge(attempt)
        if other is None:
            return None
        what = "begun to answer" if call.request.stream else "answered"
        reason = (
            f"as a hedge for {attempt.to.route}, which had not {what} after {delay_s:.3g} s; 95 % of its "
            "calls have by then"
        )
        return Attempt(other, "hedge", reason)


def _expected(failure: BaseException) -> OpenAIError:
    """Return a failure that failover handles; raise any other."""
    if isinstance(failure, OpenAIError):
        return failure
    raise failure
