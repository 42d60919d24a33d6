"""Turn a routed call into one answer: of the route that was chosen, or of who takes its place.

The first leg is the route that was decided on. Where it fails, the next candidate is asked that can help
(:mod:`specclient.call.failover.causes`); where it is slow, a second one may set out beside it
(:mod:`specclient.call.failover.hedge`); where its stream breaks off, another goes on from the text so far
(:mod:`specclient.call.failover.stream`). Each is a walk of its own, with its own row in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from specclient.call.decode import CallResult
from specclient.call.failover.attempt import Attempt, RoutedCall
from specclient.call.failover.hedge import HedgedAnswer, HedgedStream, HedgeQuota, has_side_effects, race
from specclient.call.failover.splice import has_output
from specclient.call.failover.stream import AttemptStream, FailoverStream, from_hedge, wait_for_output
from specclient.call.stream import AsyncStream
from specclient.call.subcalls import Subcall
from specclient.errors import OpenAIError
from specclient.prices.prices import Prices
from specclient.routing.choose.session_affinity import SessionAffinity
from specclient.routing.router import Router
from specclient.types.call import Call, MeteredModel
from specclient.types.request import Request

T = TypeVar("T")


class FailoverPipeline(Protocol):
    """What serves a call at one place; see :class:`specclient.call.pipeline.Pipeline`."""

    router: Router

    async def ensure_ready(self, kind: str) -> None:
        """Do what the first request of a kind needs."""
        ...

    async def attempt(self, request: Request, part: Subcall) -> CallResult:
        """Serve a request whole."""
        ...

    async def attempt_stream(self, request: Request, part: Subcall) -> AsyncStream[Any]:
        """Serve a request as a stream; returns once the answer has begun."""
        ...

    async def attempt_bytes(self, request: Request, part: Subcall) -> AsyncStream[bytes]:
        """Serve a request in the bytes of its body; returns once the answer has begun."""
        ...


class FailoverState:
    """What is remembered of routed calls, for a client and its copies.

    Args:
        prices: what a prompt that a route has cached is worth.
        clock: monotonic seconds.
    """

    def __init__(self, prices: Prices, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.hedges = HedgeQuota()
        self.sessions = SessionAffinity(prices, clock=clock)


class FailoverExecutor:
    """Serves routed calls over single walks.

    Args:
        pipeline: serves them.
        memory: of earlier calls.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pipeline: FailoverPipeline,
        memory: FailoverState,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._hedges = memory.hedges
        self._sessions = memory.sessions

    async def execute(self, request: Request) -> CallResult:
        """Serve a request whole; see :meth:`specclient.call.pipeline.Pipeline.execute`."""
        trip = await self._set_out(request)
        unread: list[CallResult] = []

        async def one(leg: Attempt) -> CallResult:
            await self._prepared(leg)
            walked = self._pipeline.attempt(*trip.ask(leg))
            done = await (walked if trip.limit_s is None else trip.within(leg, walked))
            if done.error is not None:
                unread.append(done)
                raise done.error
            return done

        async def two(leg: Attempt, after_s: float) -> Sequence[tuple[Attempt, CallResult | OpenAIError]]:
            legs = [leg]
            tries = await race(
                (first := HedgedAnswer(one(leg))),
                lambda: (
                    None
                    if (other := self._beside(trip, leg, legs, after_s)) is None
                    else HedgedAnswer(one(other))
                ),
                after_s,
                lambda each: not each.ready.cancelled() and each.ready.exception() is None,
            )
            return [(legs[each is not first], _outcome(each.ready)) for each in tries]

        try:
            leg, done = await self._first_good(trip, self._patience(trip, stream=False), one, two)
        except OpenAIError as error:
            found = next((each for each in unread if each.error is error), None)
            if found is None:
                raise
            error.__traceback__ = None  # its frames would lead back to the exchange: a circle
            return found  # whoever wants the raw response still has it
        finally:
            unread.clear()
        if isinstance(done.value, MeteredModel):
            if trip.several:
                trip.route = trip.routed(leg)
                done.value.attach_meta(trip.account("ok"))
            self.remember(done.value.meta)
        return done

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`specclient.call.pipeline.Pipeline.stream`."""
        trip = await self._set_out(request)
        streamed = FailoverStream(self, trip)
        batches = streamed.batches()
        head, dialect = await anext(batches)
        return AsyncStream(batches, streamed.meta, head, dialect)

    async def stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request in the bytes of its body; others are asked until an answer has begun."""
        trip = await self._set_out(request)

        async def one(leg: Attempt) -> AsyncStream[bytes]:
            await self._prepared(leg)
            return await self._pipeline.attempt_bytes(*trip.ask(leg))

        _, stream = await self._first_good(trip, None, one, None)
        return stream

    async def open(self, trip: RoutedCall, leg: Attempt, request: Request | None = None) -> AsyncStream[Any]:
        """Open the stream of a leg; see :class:`specclient.call.failover.stream.AttemptStreamOpener`."""
        await self._prepared(leg)
        return await trip.within(leg, self._pipeline.attempt_stream(*trip.ask(leg, request)))

    async def first(self, trip: RoutedCall) -> AttemptStream:
        """Open the first stream that answers; see
        :class:`specclient.call.failover.stream.AttemptStreamOpener`."""
        patience = self._patience(trip, stream=True)

        def speaks(batch: list[Any]) -> bool:
            return any(has_output(item) for item in batch)

        async def one(leg: Attempt) -> AttemptStream:
            stream = await self.open(trip, leg)
            if leg.why is None and not trip.may_follow:
                return AttemptStream(leg, stream, stream)
            return await wait_for_output(stream, leg, trip, speaks)

        async def two(leg: Attempt, after_s: float) -> Sequence[tuple[Attempt, AttemptStream | OpenAIError]]:
            legs = [leg]

            def start(leg: Attempt) -> HedgedStream:
                return HedgedStream(lambda: self.open(trip, leg), lambda step: trip.within(leg, step), speaks)

            tries = await race(
                (first := start(leg)),
                lambda: None if (other := self._beside(trip, leg, legs, after_s)) is None else start(other),
                after_s,
                lambda each: not each.ready.cancelled() and each.ready.exception() is None,
            )
            found: list[tuple[Attempt, AttemptStream | OpenAIError]] = []
            for each in tries:
                leg = legs[each is not first]
                failure = each.ready.exception()
                found.append((leg, from_hedge(each, leg) if failure is None else _known(failure)))
            return found

        leg, opened = await self._first_good(trip, patience, one, two)
        trip.route = trip.routed(leg)
        return opened

    async def _set_out(self, request: Request) -> RoutedCall:
        router = self._pipeline.router
        request = router.with_strategy(request)
        await self._pipeline.ensure_ready(router.kind(request))
        decision = router.decide(request)
        if request.options.session is not None:
            decision = self._sessions.prefer_cached_route(
                request.options.session, decision, router.destinations
            )
        return RoutedCall.of(request, decision, router.destinations, self._clock)

    async def _prepared(self, leg: Attempt) -> None:
        if leg.why is not None:
            await self._pipeline.ensure_ready(leg.to.provider)

    async def _first_good(
        self,
        trip: RoutedCall,
        after_s: float | None,
        one: Callable[[Attempt], Awaitable[T]],
        two: Callable[[Attempt, float], Awaitable[Sequence[tuple[Attempt, T | OpenAIError]]]] | None,
    ) -> tuple[Attempt, T]:
        """Return the first good outcome and the leg that brought it.

        Args:
            after_s: how long the first leg is waited for by itself; None for ever.
            one: makes one try; ``two``: makes one, and then another one beside it.

        Raises:
            OpenAIError: there is none.
        """
        leg = trip.first
        while True:
            outcomes: Sequence[tuple[Attempt, T | OpenAIError]]
            if after_s is None or two is None:
                try:
                    return leg, await one(leg)
                except OpenAIError as error:
                    outcomes = [(leg, error)]
            else:
                outcomes, after_s = await two(leg, after_s), None
            failure: OpenAIError | None = None
            for tried, outcome in outcomes:
                if not isinstance(outcome, OpenAIError):
                    return tried, outcome
                trip.failed(tried, outcome)
                failure = failure or outcome
            del outcomes, outcome
            assert failure is not None
            try:
                following = await trip.next(leg, failure)
                if following is None:
                    raise trip.verdict(failure)
                failure.__traceback__ = None
            finally:
                del failure  # its traceback's frame holds it: a circle
            leg = following

    def _patience(self, trip: RoutedCall, *, stream: bool) -> float | None:
        """Return the seconds after which a call may be hedged, None where it may not."""
        policy = trip.decision.policy
        share = 0.0 if policy is None else policy.hedged_share
        if not share:
            return None
        self._hedges.earn(share)
        if has_side_effects(trip.request) or not trip.waiting:
            return None
        first = trip.first.to
        return first.patience_s if stream else first.latency_limit_s

    def _beside(self, trip: RoutedCall, leg: Attempt, legs: list[Attempt], after_s: float) -> Attempt | None:
        """Return who sets out beside a leg that is slow, None where nobody may."""
        left, policy = trip.left_s, trip.decision.policy
        if policy is None or (left is not None and left <= 0) or not self._hedges.spend(policy.hedged_share):
            return None
        other = trip.beside(leg)
        if other is None:
            return None
        what = "begun to answer" if trip.request.stream else "answered"
        why = f"beside {leg.to.route}, which had not {what} after {after_s:.3g} s, as 95 % of its calls have"
        legs.append(Attempt(other, "hedge", why))
        return legs[-1]

    def remember(self, call: Call) -> None:
        """Note a finished call; see :class:`specclient.call.failover.stream.AttemptStreamOpener`."""
        if call.session is not None:
            self._sessions.note(call)


def _outcome(ready: Any) -> Any:
    failure = ready.exception()
    return ready.result() if failure is None else _known(failure)


def _known(failure: BaseException) -> OpenAIError:
    """Return a failure that others may mend; any other is raised."""
    if isinstance(failure, OpenAIError):
        return failure
    raise failure
