"""A request's walk, in order: decide, encode, send, decode, record.

The local engine takes the place of encode, send and decode; everything else is the same for both.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specclient.call import unmetered
from specclient.call.decode import BodyRecorder, CallResult, decode_events, decode_reply
from specclient.call.encode import (
    dialect_for,
    encode_request,
    engine_request,
    is_for_caller,
    not_served_in_process,
    strategy_bytes_error,
    truncated_stream_error,
    without_added_fields,
)
from specclient.call.recorder import CallRecorder
from specclient.call.stream import AsyncStream
from specclient.errors import APIError
from specclient.prices.prices import Prices
from specclient.providers import Endpoint, dialect_of, usage_requested
from specclient.routing.destinations import Destination, DestinationRegistry
from specclient.routing.router import AUTO, Router
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.transport.http import Transport
from specclient.types.backend import Backend, EngineTelemetry
from specclient.types.call import Call, MeteredModel
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.route import Decision

if TYPE_CHECKING:
    from specclient.budgets.budgets import Budgets
    from specclient.call.failover.executor import FailoverExecutor, FailoverState
    from specclient.call.strategies.executor import StrategyExecutor
    from specclient.call.subcalls import Subcall
    from specclient.telemetry.prometheus import CounterValues

_log = logging.getLogger("specclient")

Observer = Callable[[Call], Awaitable[None]]


class Pipeline:
    """Serves requests.

    Args:
        router: chooses the place that serves a request.
        transport: sends what a dialect encoded.
        prices: what a call cost.
        observers: told of each finished call, in order; one that raises is logged and breaks nothing.
        failover_state: gives what is remembered of routed calls, for several to share.
        prepare: opens what observers write to; called in a thread before a first request, and may refuse it.
        budgets: refuse what may cost too much, before it is sent; None where there are none. What they hold
            for a call they let go of by its record, as one of the observers hands it to them.
        warm: what has been prepared, for several to share.
        on_routed_call: told of every call that is about to be routed.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        router: Router,
        transport: Transport,
        prices: Prices,
        observers: Sequence[Observer],
        *,
        failover_state: Callable[[], FailoverState],
        prepare: Callable[[], None] = lambda: None,
        budgets: Budgets | None = None,
        warm: set[str] | None = None,
        on_routed_call: Callable[[Router, Transport], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.router = router
        self.transport = transport
        self._prices = prices
        self.observers = list(observers)
        self._prepare = prepare
        self.budgets = budgets
        self._warm: set[str] = set() if warm is None else warm
        self._warming = threading.Lock()
        self._on_routed_call = on_routed_call
        self._failover_state = failover_state
        self._clock = clock
        register_fork_reset(self)

    @property
    def destinations(self) -> DestinationRegistry:
        """The endpoints and engines that calls can be sent to."""
        return self.router.destinations

    def reconfigure(
        self,
        *,
        router: Router | None = None,
        transport: Transport | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """Replace what is given; calls that start from now on use it."""
        self.router = self.router if router is None else router
        self.transport = self.transport if transport is None else transport
        self.budgets = self.budgets if budgets is None else budgets

    def reset_after_fork(self) -> None:
        """In a forked child: a thread of the parent may have been warming up."""
        self._warming = threading.Lock()

    @cached_property
    def _strategies(self) -> StrategyExecutor:
        """Plays strategies; imported when the first call asks for one."""
        from specclient.call.strategies import PredictionHistory  # noqa: PLC0415
        from specclient.call.strategies.executor import StrategyExecutor  # noqa: PLC0415

        return StrategyExecutor(self, self._prices, PredictionHistory(), clock=self._clock)

    @cached_property
    def _failover(self) -> FailoverExecutor:
        """Serves routed calls; imported when the first one is made."""
        with import_lock:
            from specclient.call.failover.executor import FailoverExecutor  # noqa: PLC0415

        return FailoverExecutor(self, self._failover_state(), clock=self._clock)

    def _routes(self, request: Request) -> bool:
        """Tell whether a request's route is chosen; most name their model, and this is on their way."""
        return (request.policy is not None or request.model == AUTO) and self.router.kind(request) == AUTO

    async def call(self, request: Request) -> Any:
        """Serve a request whole and return what its method gives."""
        return (await self.execute(request)).unwrap()

    async def execute(self, request: Request) -> CallResult:
        """Serve a request whole and return the answer together with the HTTP that brought it.

        An answer that cannot be read is an error inside the exchange, not one of this method: whoever asked
        for the raw response still has it.
        """
        if not request.method.metered:
            return await unmetered.execute(request, self.destinations, self.transport)
        return await (self._failover.execute(request) if self._routes(request) else self.attempt(request))

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request in the events of its method; returns once the answer has begun."""
        if not request.method.metered:
            return await self._started(unmetered.stream(request, self.destinations, self.transport), _no_call)
        return await (
            self._failover.stream(request) if self._routes(request) else self.attempt_stream(request)
        )

    async def attempt(self, request: Request, part: Subcall | None = None) -> CallResult:
        """Serve a request whole at one place: as its strategy plays it, else as it is."""
        if request.strategy is not None:
            return await self._strategies.execute(request, part)
        return await self.send(request, part)

    async def attempt_stream(self, request: Request, part: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request as a stream at one place: as its strategy plays it, else as it is."""
        if request.strategy is not None:
            return await self._strategies.stream(request, part)
        return await self.send_stream(request, part)

    async def send_stream(self, request: Request, part: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request on which a model works, by itself or as a part of another."""
        decision, place, record = await self._open_record(request, part)
        if isinstance(place, Endpoint):
            source = self._hosted(request, decision, place, record)
        else:
            source = self._local(request, decision, place, record)
        meta = record.snapshot if part is None else lambda: part.running(record.snapshot())
        return await self._started(self._recorded(source, request, place, record, part), meta)

    async def stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request in the bytes of its body, as they arrive; returns once the answer has begun."""
        if request.strategy is not None:
            raise strategy_bytes_error()
        if not request.method.metered:
            return await self._started(
                unmetered.stream_bytes(request, self.destinations, self.transport), _no_call
            )
        return await (
            self._failover.stream_bytes(request) if self._routes(request) else self.attempt_bytes(request)
        )

    async def attempt_bytes(self, request: Request, part: Subcall | None = None) -> AsyncStream[bytes]:
        """Serve a request on which a model works in the bytes of its body, at one place."""
        decision, place, record = await self._open_record(request, part)
        if not isinstance(place, Endpoint):
            await self._close_record(record, error := not_served_in_process(decision.provider), part)
            raise error
        source = self._metered_bytes(request, decision, place, record, part)
        return await self._started(source, record.snapshot)

    async def list_models(self, provider: str | None = None) -> list[Model]:
        """List what an endpoint or an engine serves; the default endpoint's where none is named."""
        return await unmetered.list_models(provider, self.destinations, self.transport)

    async def send(self, request: Request, part: Subcall | None = None) -> CallResult:
        """Serve a request on which a model works whole, by itself or as a part of another."""
        decision, place, record = await self._open_record(request, part)
        sent = None
        try:
            if isinstance(place, Endpoint):
                sent = encode_request(request, decision, place, record)
                before = await self._counters(place) if place.metrics else None
                wire = await self.transport.fetch(sent)
                record.note_headers(wire.attempts, wire.request_id, wire.headers)
                await self._record_counters(place, record, before)
                done = decode_reply(place, request, wire)
            else:
                answer, measured = await place.complete(engine_request(request, decision), decision.model)
                record.note_engine_telemetry(measured)
                done = CallResult(answer)
            if done.error is None:
                record.note_answer(done.value, dialect_for(place).usage(done.value))
                if sent is not None and (used := record.total_tokens) is not None:
                    self.transport.used(sent, used)
        except BaseException as error:
            await self._close_record(record, error, part)
            raise
        call = await self._close_record(record, done.error, part)
        if isinstance(done.value, MeteredModel):
            done.value.attach_meta(call)
        return done

    async def _started(
        self, batches: AsyncGenerator[Any, None], meta: Callable[[], Call]
    ) -> AsyncStream[Any]:
        """Return a stream once its answer has begun: what refuses the request is raised here."""
        head, dialect = await anext(batches)
        return AsyncStream(batches, meta, head, dialect)

    def warm_up(self, request: Request) -> None:
        """Do what :meth:`ensure_ready` does in the thread of a caller that waits anyway."""
        if request.method.metered and (kind := self.router.kind(request)) not in self._warm:
            self._warm_up(kind)

    async def ensure_ready(self, kind: str) -> None:
        """Do what the first request of a kind needs; see :meth:`Router.kind`."""
        if kind not in self._warm:
            await run_in_thread(lambda: self._warm_up(kind))
        if kind == AUTO and self._on_routed_call is not None:
            self._on_routed_call(self.router, self.transport)

    async def _open_record(
        self, request: Request, part: Subcall | None = None
    ) -> tuple[Decision, Destination, CallRecorder]:
        if part is None or part.route is None:
            await self.ensure_ready(self.router.kind(request))
            decision = self.router.decide(request)
        else:
            decision = part.route
        place = self.destinations.get(decision.provider)
        endpoint = place if isinstance(place, Endpoint) else None
        listed = None if endpoint is None else endpoint.price_provider
        if listed is not None and not self._prices.ready(decision.provider, decision.model, listed):
            await run_in_thread(lambda: self._prices.warm(decision.model, listed))
        record = CallRecorder(
            request,
            decision,
            self._prices,
            clock=self._clock,
            hosted=endpoint is not None,
            price_provider=listed,
            rejected_billed=False if endpoint is None else endpoint.capabilities.rejected_billed,
        )
        if self.budgets is not None:
            await self.budgets.reserve(record.id, request, decision, price_provider=listed)
        if "opentelemetry.trace" in sys.modules:
            with import_lock:
                from specclient.call.tracing import begin_span  # noqa: PLC0415 - only in programs that trace

            record.span = begin_span(request, decision, endpoint)
        return decision, place, record

    def _warm_up(self, kind: str) -> None:
        """Do what the first request of a kind needs before anything is sent; the first of several does it."""
        with self._warming, import_lock:
            if kind not in self._warm:
                self._prepare()
                if self.router.warm(kind):
                    self.transport.prepare()
                self._warm.add(kind)

    async def _hosted(
        self, request: Request, decision: Decision, place: Endpoint, record: CallRecorder
    ) -> AsyncGenerator[Any, None]:
        """Yield the response once the endpoint has answered, then the chunks, as they came together."""
        wire = encode_request(request, decision, place, record)
        before = await self._counters(place) if place.metrics else None
        async with self.transport.stream(wire) as events:
            record.note_headers(events.attempts, events.request_id, events.headers)
            yield events, None
            async for batch in decode_events(place, request, events):
                yield batch
            await self._record_counters(place, record, before)
            if (used := record.total_tokens) is not None:
                self.transport.used(wire, used)
            if not (events.done or record.is_complete):
                raise truncated_stream_error(place)

    async def _local(
        self, request: Request, decision: Decision, place: Backend, record: CallRecorder
    ) -> AsyncGenerator[Any, None]:
        """Yield None once the engine has taken the request, then its chunks."""
        begun = False
        async with aclosing(place.stream(engine_request(request, decision), decision.model)) as items:
            async for item in items:
                if not begun:
                    begun = True
                    yield None, None
                if isinstance(item, EngineTelemetry):
                    record.note_engine_telemetry(item)
                else:
                    yield [item]

    async def _recorded(
        self,
        source: AsyncGenerator[Any, None],
        request: Request,
        place: Destination,
        record: CallRecorder,
        part: Subcall | None,
    ) -> AsyncGenerator[Any, None]:
        """Note every chunk, pass on what the caller asked for, and end the record however the source ends."""
        usage_of = dialect_for(place).usage
        completes, wanted = request.operation in ("chat", "completion"), usage_requested(request)
        try:
            async with aclosing(source):
                yield await anext(source)
                async for batch in source:
                    for chunk in batch:
                        record.note_chunk(chunk, usage_of(chunk))
                    if completes and not batch[-1].choices:
                        kept = [c for c in batch if c.choices or is_for_caller(c, request, usage=wanted)]
                        batch = kept  # noqa: PLW2901
                    yield batch
        except BaseException as error:
            if isinstance(error, APIError) and error.partial is None:
                error.partial = record.text or None
            await self._close_record(record, error, part)
            raise
        batch = chunk = None  # not kept while the record is being written: a crowd may end at once
        await self._close_record(record, None, part)

    async def _metered_bytes(
        self,
        request: Request,
        decision: Decision,
        place: Endpoint,
        record: CallRecorder,
        part: Subcall | None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the response, then its body; whatever of it was read is what the call is recorded by."""
        passing = BodyRecorder(place, request, record)
        place = without_added_fields(place, request)  # the bytes go on as they came
        try:
            sent = encode_request(request, decision, place, record)
            before = await self._counters(place) if place.metrics else None
            async with self.transport.open(sent) as body:
                record.note_headers(body.attempts, body.request_id, body.headers)
                yield body, dialect_of(place)
                async for chunk in body.chunks():
                    passing.feed(chunk)
                    yield [chunk]
                await self._record_counters(place, record, before)
        except BaseException as error:
            passing.close()
            await self._close_record(record, error, part)
            raise
        passing.close()
        if (used := record.total_tokens) is not None:
            self.transport.used(sent, used)
        await self._close_record(record, None, part)

    async def _counters(self, place: Endpoint) -> CounterValues | None:
        with import_lock:
            from specclient.telemetry.scraper import scrape_counters  # noqa: PLC0415 - only where they are read

        return await scrape_counters(self.transport, place)

    async def _record_counters(
        self, place: Endpoint, record: CallRecorder, before: CounterValues | None
    ) -> None:
        """Note what an endpoint's counters have gained since they were read."""
        if before is not None and (after := await self._counters(place)) is not None:
            record.note_counters(before, after)

    async def _close_record(
        self, record: CallRecorder, error: BaseException | None = None, part: Subcall | None = None
    ) -> Call:
        """Close the record and tell the observers, even where the caller has been cancelled."""
        call = record.close(error)
        if part is not None:
            call = part.ended(call, error)
        with cancel_shield():
            for observe in self.observers:
                try:
                    await observe(call)
                except Exception:  # noqa: BLE001 - an answer that has been paid for is not lost over its record
                    _log.exception("a finished call could not be recorded")
        return call


def _no_call() -> Call:
    raise AttributeError("no model worked on this call, so there is no record of it")
