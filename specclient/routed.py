"""Turn a routed call into one answer: of the route that was chosen, or of who takes its place.

The first leg is the route that was decided on. Where it fails, the next candidate is asked that can help
(:mod:`specclient.routed_errors`); where it is slow, a second one may set out beside it
(:mod:`specclient.routed_race`); where its stream breaks off, another goes on from the text so far
(:mod:`specclient.routed_stream`). Each is a walk of its own, with its own row in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from specclient.costs.prices import Prices
from specclient.errors import OpenAIError
from specclient.part import Part
from specclient.reading import Exchange
from specclient.routed_race import Hedges, Pumped, Running, leaves_traces, race
from specclient.routed_seam import said
from specclient.routed_stream import Opened, Streamed, begun, pumped
from specclient.routed_trip import Leg, Trip
from specclient.routing.router import Router
from specclient.routing.sessions import Sessions
from specclient.stream import AsyncStream
from specclient.types.call import Call, Metered
from specclient.types.request import Request

T = TypeVar("T")


class Walk(Protocol):
    """What serves a call at one place; see :class:`specclient.pipeline.Pipeline`."""

    router: Router

    async def ready(self, kind: str) -> None:
        """Do what the first request of a kind needs."""
        ...

    async def once(self, request: Request, part: Part) -> Exchange:
        """Serve a request whole."""
        ...

    async def once_stream(self, request: Request, part: Part) -> AsyncStream[Any]:
        """Serve a request as a stream; returns once the answer has begun."""
        ...

    async def once_bytes(self, request: Request, part: Part) -> AsyncStream[bytes]:
        """Serve a request in the bytes of its body; returns once the answer has begun."""
        ...


class Memory:
    """What is remembered of routed calls, for a client and its copies.

    Args:
        prices: what a prompt that a route has cached is worth.
        clock: monotonic seconds.
    """

    def __init__(self, prices: Prices, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.hedges = Hedges()
        self.sessions = Sessions(prices, clock=clock)


class Routed:
    """Serves routed calls over single walks.

    Args:
        walk: serves them.
        memory: of earlier calls.
        clock: monotonic seconds.
    """

    def __init__(self, walk: Walk, memory: Memory, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._walk = walk
        self._clock = clock
        self._hedges = memory.hedges
        self._sessions = memory.sessions

    async def exchange(self, request: Request) -> Exchange:
        """Serve a request whole; see :meth:`specclient.pipeline.Pipeline.exchange`."""
        trip = await self._set_out(request)
        unread: list[Exchange] = []

        async def one(leg: Leg) -> Exchange:
            await self._prepared(leg)
            walked = self._walk.once(*trip.ask(leg))
            done = await (walked if trip.limit_s is None else trip.within(leg, walked))
            if done.error is not None:
                unread.append(done)
                raise done.error
            return done

        async def two(leg: Leg, after_s: float) -> Sequence[tuple[Leg, Exchange | OpenAIError]]:
            legs = [leg]
            tries = await race(
                (first := Running(one(leg))),
                lambda: (
                    None if (other := self._beside(trip, leg, legs, after_s)) is None else Running(one(other))
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
        if isinstance(done.value, Metered):
            if trip.several:
                trip.route = trip.routed(leg)
                done.value._meta = trip.account("ok")
            if done.value._meta is not None:
                self.remember(done.value._meta)
        return done

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`specclient.pipeline.Pipeline.stream`."""
        trip = await self._set_out(request)
        streamed = Streamed(self, trip)
        batches = streamed.batches()
        head, dialect = await anext(batches)
        return AsyncStream(batches, streamed.meta, head, dialect)

    async def bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request in the bytes of its body; others are asked until an answer has begun."""
        trip = await self._set_out(request)

        async def one(leg: Leg) -> AsyncStream[bytes]:
            await self._prepared(leg)
            return await self._walk.once_bytes(*trip.ask(leg))

        _, stream = await self._first_good(trip, None, one, None)
        return stream

    async def open(self, trip: Trip, leg: Leg, request: Request | None = None) -> AsyncStream[Any]:
        """Open the stream of a leg; see :class:`specclient.routed_stream.Opener`."""
        await self._prepared(leg)
        return await trip.within(leg, self._walk.once_stream(*trip.ask(leg, request)))

    async def first(self, trip: Trip) -> Opened:
        """Open the first stream that answers; see :class:`specclient.routed_stream.Opener`."""
        patience = self._patience(trip, stream=True)

        def speaks(batch: list[Any]) -> bool:
            return any(said(item) for item in batch)

        async def one(leg: Leg) -> Opened:
            stream = await self.open(trip, leg)
            if leg.why is None and not trip.may_follow:
                return Opened(leg, stream, stream)
            return await begun(stream, leg, trip, speaks)

        async def two(leg: Leg, after_s: float) -> Sequence[tuple[Leg, Opened | OpenAIError]]:
            legs = [leg]

            def start(leg: Leg) -> Pumped:
                return Pumped(lambda: self.open(trip, leg), lambda step: trip.within(leg, step), speaks)

            tries = await race(
                (first := start(leg)),
                lambda: None if (other := self._beside(trip, leg, legs, after_s)) is None else start(other),
                after_s,
                lambda each: not each.ready.cancelled() and each.ready.exception() is None,
            )
            found: list[tuple[Leg, Opened | OpenAIError]] = []
            for each in tries:
                leg = legs[each is not first]
                failure = each.ready.exception()
                found.append((leg, pumped(each, leg) if failure is None else _known(failure)))
            return found

        leg, opened = await self._first_good(trip, patience, one, two)
        trip.route = trip.routed(leg)
        return opened

    async def _set_out(self, request: Request) -> Trip:
        router = self._walk.router
        request = router.with_strategy(request)
        await self._walk.ready(router.kind(request))
        decision = router.decide(request)
        if request.options.session is not None:
            decision = self._sessions.kept(request.options.session, decision, router.places)
        return Trip.of(request, decision, router.places, self._clock)

    async def _prepared(self, leg: Leg) -> None:
        if leg.why is not None:
            await self._walk.ready(leg.to.provider)

    async def _first_good(
        self,
        trip: Trip,
        after_s: float | None,
        one: Callable[[Leg], Awaitable[T]],
        two: Callable[[Leg, float], Awaitable[Sequence[tuple[Leg, T | OpenAIError]]]] | None,
    ) -> tuple[Leg, T]:
        """Return the first good outcome and the leg that brought it.

        Args:
            after_s: how long the first leg is waited for by itself; None for ever.
            one: makes one try; ``two``: makes one, and then another one beside it.

        Raises:
            OpenAIError: there is none.
        """
        leg = trip.first
        while True:
            outcomes: Sequence[tuple[Leg, T | OpenAIError]]
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

    def _patience(self, trip: Trip, *, stream: bool) -> float | None:
        """Return the seconds after which a call may be hedged, None where it may not."""
        policy = trip.decision.policy
        share = 0.0 if policy is None else policy.hedged_share
        if not share:
            return None
        self._hedges.earn(share)
        if leaves_traces(trip.request) or not trip.waiting:
            return None
        first = trip.first.to
        return first.patience_s if stream else first.latency_limit_s

    def _beside(self, trip: Trip, leg: Leg, legs: list[Leg], after_s: float) -> Leg | None:
        """Return who sets out beside a leg that is slow, None where nobody may."""
        left, policy = trip.left_s, trip.decision.policy
        if policy is None or (left is not None and left <= 0) or not self._hedges.spend(policy.hedged_share):
            return None
        other = trip.beside(leg)
        if other is None:
            return None
        what = "begun to answer" if trip.request.stream else "answered"
        why = f"beside {leg.to.route}, which had not {what} after {after_s:.3g} s, as 95 % of its calls have"
        legs.append(Leg(other, "hedge", why))
        return legs[-1]

    def remember(self, call: Call) -> None:
        """Note a finished call; see :class:`specclient.routed_stream.Opener`."""
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
