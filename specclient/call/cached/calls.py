"""Calls with the response cache: answered from it, by an equal call in flight, or made and kept.

The steps of a call: its key (:mod:`.key`); joining the equal calls in flight (:mod:`.flights`), which wait
for the first one, the leader; the leader's look into the store; its call as without a cache, and the storing
of an answer that ended well (:mod:`.answers`). A call that is answered without being made has a record of its
own, with a cost of 0 (:mod:`.hits`). It is given to the observers of records alone: budgets, limits, circuits
and estimates hear nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from specclient.call.cached.answers import StreamRecording, whole_answer
from specclient.call.cached.claims import Claim, claimed_or_found
from specclient.call.cached.flights import LEADS, Flight, FlightOutcome, Flights
from specclient.call.cached.hits import Hits
from specclient.call.cached.key import DestinationMarks, UnkeyableError, request_digest
from specclient.call.cached.rules import is_cacheable, is_random
from specclient.call.large_values import run_on_value
from specclient.call.request_params import with_remaining_deadline
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.response_cache.answer import CachedAnswer
from specclient.response_cache.cache import ResponseCache
from specclient.routing.router import Router
from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.replaced import replaced
from specclient.types.cache_options import CacheOptions
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision

__all__ = ["CachedCalls"]

#: Seconds that a call without limits of its own waits for an equal one, before it is made.
MAX_WAIT_S = 600.0

_Serve = Callable[[Request], Awaitable[CallResult]]
_ServeStream = Callable[[Request], Awaitable[AsyncStream[Any]]]


class CachingPipeline(Protocol):
    """The parts of :class:`specclient.call.pipeline.Pipeline` that calls with the cache need."""

    router: Router

    async def ensure_recording(self) -> None:
        """Prepare what the observers of records write to."""
        ...

    async def report(self, call: Call) -> None:
        """Give a finished call to the observers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyedCall:
    """A call that the cache may answer.

    Attributes:
        request: the request.
        key: its key.
        decision: the route of a named model; None for a routed call.
        max_age_s: the maximum age of an answer; None for that of the configuration.
        begun_s: when it began, in monotonic seconds.
    """

    request: Request
    key: str
    decision: Decision | None
    max_age_s: float | None
    begun_s: float


class CachedCalls:
    """Serves the calls that may use the response cache.

    Args:
        pipeline: routes and records the calls.
        cache: finds and keeps answers.
        flights: the calls in flight, shared with the client's copies.
        clock: monotonic seconds.
    """

    def __init__(
        self, pipeline: CachingPipeline, cache: ResponseCache, flights: Flights, *, clock: Callable[[], float]
    ) -> None:
        self._pipeline, self._cache, self._flights, self._clock = pipeline, cache, flights, clock
        self._marks = DestinationMarks()
        self._hits = Hits(pipeline.ensure_recording, pipeline.report, clock=clock)

    async def execute(self, request: Request, options: CacheOptions, serve: _Serve) -> CallResult:
        """Serve a request, as a whole.

        Args:
            options: those of the call.
            serve: makes the call without the cache.
        """
        call = await self._keyed(request, options)
        if call is None:
            return await serve(_uncached(request))
        flight, outcome = await self._joined(call)
        if outcome is LEADS:
            return await self._lead(call, flight, serve)
        answer = self._answer(call, outcome)
        hit = (
            None if answer is None else await self._hits.result(request, answer, call.decision, call.begun_s)
        )
        return hit or await serve(self._delayed(call))

    async def stream(self, request: Request, options: CacheOptions, serve: _ServeStream) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`execute`."""
        call = await self._keyed(request, options)
        if call is None:
            return await serve(_uncached(request))
        flight, outcome = await self._joined(call)
        if outcome is LEADS:
            return await self._lead_stream(call, flight, serve)
        answer = self._answer(call, outcome)
        hit = (
            None if answer is None else await self._hits.stream(request, answer, call.decision, call.begun_s)
        )
        return hit or await serve(self._delayed(call))

    # Before the call

    async def _keyed(self, request: Request, options: CacheOptions) -> _KeyedCall | None:
        """Return a call with its key; None for one that the cache may not answer.

        Raises:
            NotFoundError: the model's provider is unknown, or the request may not be sent there.
        """
        begun_s = self._clock()
        may_be_random = self._cache.random if options.random is None else options.random
        if not self._cache.enabled or not is_cacheable(request) or (not may_be_random and is_random(request)):
            return None
        router, permit = self._pipeline.router, request.options.permit
        decision = router.named(request)
        is_ready = True
        if decision is not None:
            if permit is not None:  # an answer is given to those alone who may make the call
                permit.check(decision.provider, decision.model)
            place = router.destinations.of_model(decision.provider, decision.model)
            is_ready = self._marks.knows(place, decision.model)
        owner = self._cache.owner(request.options.owner)

        def digest() -> str:
            return request_digest(request, decision, owner, router, self._marks)

        try:
            if is_ready:
                values = [*request.params.values(), *request.options.body.values()]
                key = await run_on_value(values, digest)
            else:  # it reads files
                key = await run_in_thread(digest)
        except UnkeyableError:
            return None
        return _KeyedCall(
            request=request, key=key, decision=decision, max_age_s=options.max_age_s, begun_s=begun_s
        )

    async def _joined(self, call: _KeyedCall) -> tuple[Flight, FlightOutcome]:
        # A call with another maximum age may need another answer.
        return await self._flights.join(f"{call.key} {call.max_age_s}", _patience_s(call.request))

    def _delayed(self, call: _KeyedCall) -> Request:
        """Return a request whose deadline is reduced by the time that it has waited.

        Raises:
            DeadlineExceededError: no time is left.
        """
        waited_s = self._clock() - call.begun_s
        request = _uncached(call.request)
        return with_remaining_deadline(request, waited_s, spent_on="waiting for an equal call in flight")

    def _answer(self, call: _KeyedCall, body: bytes | str | None) -> CachedAnswer | None:
        """Return an answer as it was kept; None for none, and for one that is damaged."""
        if not isinstance(body, bytes):
            return None
        try:
            return CachedAnswer.decode(body)
        except ValueError as error:
            self._cache.drop_damaged(call.key, str(error))
            return None

    # The leader of equal calls

    async def _lead(self, call: _KeyedCall, flight: Flight, serve: _Serve) -> CallResult:
        claim: Claim | None = None
        try:
            claim, body = await self._found(call, flight)
            answer, result = self._answer(call, body), None
            if answer is not None and body is not None:
                result = await self._hits.result(call.request, answer, call.decision, call.begun_s)
            if result is not None and body is not None:
                self._flights.publish(flight, body)
            else:
                result = await serve(self._delayed(call))
                await self._keep(call, flight, whole_answer(call.request, result, self._cache.now_ms()))
        except BaseException as error:
            self._end_failed(flight, error)
            raise
        finally:
            if claim is not None:
                claim.end()
        self._flights.land(flight)
        return result

    async def _lead_stream(self, call: _KeyedCall, flight: Flight, serve: _ServeStream) -> AsyncStream[Any]:
        claim: Claim | None = None
        try:
            claim, body = await self._found(call, flight)
            answer, hit = self._answer(call, body), None
            if answer is not None:
                hit = await self._hits.stream(call.request, answer, call.decision, call.begun_s)
            if hit is not None and body is not None:
                self._flights.publish(flight, body)
                self._flights.land(flight)
                return hit
            stream = await serve(self._delayed(call))
        except BaseException as error:
            self._end_failed(flight, error)
            if claim is not None:
                claim.end()
            raise
        batches = self._recorded(call, flight, claim, stream)
        http, dialect = await anext(batches)
        return AsyncStream(batches, lambda: stream.meta, http, dialect)

    async def _found(self, call: _KeyedCall, flight: Flight) -> tuple[Claim | None, bytes | None]:
        """Return a kept answer; without one, perhaps the claim of this process to make the call."""
        body = await self._cache.find(call.key, call.max_age_s)
        if body is not None or not self._cache.across_processes:
            return None, body
        return await claimed_or_found(
            self._cache,
            call.key,
            call.max_age_s,
            patience_s=_patience_s(call.request) - (self._clock() - call.begun_s),
            clock=self._clock,
            is_stalled=lambda: self._flights.has_stalled(flight),
        )

    async def _recorded(
        self, call: _KeyedCall, flight: Flight, claim: Claim | None, stream: AsyncStream[Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield what a stream is opened with, then its batches; keep them when it has ended well."""
        recording = StreamRecording(call.request, self._cache.limits.max_entry_bytes)
        flights = self._flights
        try:
            flights.pause(flight)
            yield stream.http, stream.dialect
            flights.resume(flight)
            while True:
                try:
                    batch = await stream.next_batch()
                except StopAsyncIteration:
                    break
                recording.add(batch)
                flights.pause(flight)
                yield batch
                flights.resume(flight)
            await self._keep(call, flight, recording.answer(stream.meta, self._cache.now_ms()))
        except BaseException as error:
            self._end_failed(flight, error)
            await stream.close()
            raise
        finally:
            if claim is not None:
                claim.end()
        flights.land(flight)

    def _end_failed(self, flight: Flight, error: BaseException) -> None:
        """End the lead of a call that has failed, or was cancelled; a cancellation is no ``Exception``."""
        if flight.answer is None:
            self._flights.fail(flight, cancelled=not isinstance(error, Exception))
        else:
            self._flights.land(flight)

    async def _keep(self, call: _KeyedCall, flight: Flight, answer: CachedAnswer | None) -> None:
        """Give an answer to those who wait for it, and store it."""
        if answer is not None:
            body = answer.encode()
            self._flights.publish(flight, body)
            await self._cache.keep(call.key, body, answer.made_ms)


def _uncached(request: Request) -> Request:
    """Return a request for the pipeline without the cache."""
    return replaced(request, options=replaced(request.options, cache=False))


def _patience_s(request: Request) -> float:
    """Return the seconds that a call waits at most for an equal one: its own limits, if it has any."""
    options = request.options
    limits = [
        float(limit)
        for limit in (options.deadline_s, options.timeout)
        if isinstance(limit, int | float) and not isinstance(limit, bool)
    ]
    return min([MAX_WAIT_S, *limits])
