"""Recorded calls: requests sent to one destination each, within a budget, whose records go to observers."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from specclient.call import metered
from specclient.call.errors import server_deadline_error
from specclient.call.observers import Observer, observe_all
from specclient.call.over_chat import is_over_chat
from specclient.call.recorded_stream import recorded_bytes, recorded_chunks
from specclient.call.recorder import CallRecorder
from specclient.call.result import CallResult, OpenedCall
from specclient.call.stream import AsyncStream
from specclient.http_transport.http import Transport
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry, engine_context
from specclient.routing.router import AUTO, Router
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.runtime.time_limit import TimeLimit
from specclient.types.call import Call
from specclient.types.request import Request
from specclient.types.route import Decision

if TYPE_CHECKING:
    from specclient.budgets.budgets import Budgets
    from specclient.call.subcalls import Subcall
    from specclient.providers.endpoint import EndpointServer

__all__ = ["RecordedCalls", "RecordingOptions", "started"]

#: The kind of requests to methods without a model, besides those of :meth:`Router.kind`.
_NO_MODEL = ""
#: The kind of calls that are recorded but not sent; no provider has this name.
_NOT_SENT = " not sent"
_UNMETERED = frozenset({_NO_MODEL})


class RecordingOptions(TypedDict, total=False):
    """Options of :class:`RecordedCalls`.

    Attributes:
        prepare: called in a thread before the first request, to open what observers write to. An exception
            refuses the request.
        budgets: refuse a request that may exceed a budget, before it is sent; None for no budgets. They
            release a reservation when, as an observer, they receive the call's record.
        warm: the kinds of request that are prepared already, which copies of a client share; see
            :meth:`Router.kind`.
        on_routed_call: called before each call whose route is chosen.
        clock: monotonic seconds.
    """

    prepare: Callable[[], None]
    budgets: Budgets | None
    warm: set[str]
    on_routed_call: Callable[[Router, Transport], None]
    clock: Callable[[], float]


class RecordedCalls:
    """Sends requests to one destination each, and records every call.

    Args:
        router: chooses the destination of a request.
        transport: sends encoded requests over HTTP.
        prices: computes what a call cost.
        observers: called with each finished call, in order; the call awaits what they return. An exception
            is logged and does not affect the call.
        options: see :class:`RecordingOptions`.
    """

    def __init__(
        self,
        router: Router,
        transport: Transport,
        prices: Prices,
        observers: Sequence[Observer],
        **options: Unpack[RecordingOptions],
    ) -> None:
        self.router = router
        self.transport = transport
        self._prices = prices
        self.observers = list(observers)
        self._prepare = options.get("prepare", lambda: None)
        self.budgets = options.get("budgets")
        self._warm: set[str] = options.get("warm", set())
        self._warm_lock = threading.Lock()
        self._on_routed_call = options.get("on_routed_call")
        self._clock = options.get("clock", time.perf_counter)
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
        """Replace the parts that are given; calls that start from now on use them."""
        self.router = self.router if router is None else router
        self.transport = self.transport if transport is None else transport
        self.budgets = self.budgets if budgets is None else budgets

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may have held."""
        self._warm_lock = threading.Lock()

    async def send(self, request: Request, subcall: Subcall | None = None) -> CallResult:
        """Send a request to one destination and record the call.

        Args:
            subcall: its relation to another call; None for a call of its own.
        """
        decision, destination, record, request = await self.open_record(request, subcall)
        over = _translation() if is_over_chat(request, destination) else None
        try:
            sent = request if over is None else await over.served_request(request)
            result = await metered.execute(sent, decision, destination, record, self.transport)
            result = result if over is None else over.result_of(request, decision, result)
        except BaseException as error:
            await self.close_record(record, error, subcall)
            raise
        call = await self.close_record(record, result.error, subcall)
        # Not by isinstance, because pydantic's is slow.
        if (attach := getattr(type(result.value), "attach_meta", None)) is not None:
            attach(result.value, call)
        return result if result.error is None else replace(result, call=call)

    async def send_stream(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[Any]:
        """Send a request to one destination as a stream and record the call; see :meth:`send`."""
        decision, destination, record, request = await self.open_record(request, subcall)
        over = _translation() if is_over_chat(request, destination) else None
        close = partial(self.close_record, record, subcall=subcall)
        try:
            sent = request if over is None else await over.served_request(request)
        except BaseException as error:
            await close(error)
            raise
        source = metered.stream(sent, decision, destination, record, self.transport)
        chunks = recorded_chunks(source, sent, destination, record, close)
        if over is not None:
            chunks = over.streamed_events(request, decision, chunks)
        meta = record.snapshot if subcall is None else lambda: subcall.open_record(record.snapshot())
        return await started(chunks, meta)

    async def send_bytes(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[bytes]:
        """Send a request to one destination, return the response as bytes, and record the call."""
        decision, destination, record, request = await self.open_record(request, subcall)
        source = metered.stream_bytes(request, decision, destination, record, self.transport)
        close = partial(self.close_record, record, subcall=subcall)
        return await started(recorded_bytes(source, close), record.snapshot)

    async def open_record(
        self, request: Request, subcall: Subcall | None = None, *, reserve: bool = True
    ) -> OpenedCall:
        """Decide the destination, check the permit, reserve the budget and start the record.

        The request to send is in the result: it has the limit of the answer that a hard budget has reserved.

        Args:
            reserve: False for a call that the provider has begun already, which budgets count without a
                check.
        """
        if subcall is None or subcall.route is None:
            decision = await self._decide(request)
        else:
            decision = subcall.route
        permit = request.options.permit
        if permit is not None:  # checked here, because every attempt of every call passes this point
            permit.check(decision.provider, decision.model)
        decision = self.router.placed(decision, request, self.transport)
        destination = self.destinations.of_model(decision.provider, decision.model)
        endpoint = destination if isinstance(destination, Endpoint) else None
        price_provider = None if endpoint is None else endpoint.price_provider
        if price_provider is not None and not self._prices.is_loaded(
            decision.provider, decision.model, price_provider
        ):
            await run_in_thread(lambda: self._prices.load(decision.model, price_provider))
        record = CallRecorder(
            request,
            decision,
            self._prices,
            clock=self._clock,
            hosted=endpoint is not None,
            over_chat=is_over_chat(request, destination),
            price_provider=price_provider,
            rejected_billed=False if endpoint is None else endpoint.capabilities.rejected_billed,
        )
        if self.budgets is not None:
            request = await self._counted_request(
                request, decision, destination, record, price_provider, reserve=reserve
            )
        if "opentelemetry.trace" in sys.modules:
            with import_lock:
                from specclient.call.tracing import begin_span  # noqa: PLC0415 - only in programs that trace

            record.span = begin_span(request, decision, endpoint)
        if endpoint is not None and endpoint.server is not None:
            server = endpoint.server.for_call(record.id, request)
            return await self._with_running_server(
                OpenedCall(decision, endpoint, record, request), server, subcall
            )
        return OpenedCall(decision, destination, record, request)

    async def _counted_request(
        self,
        request: Request,
        decision: Decision,
        destination: Any,
        record: CallRecorder,
        price_provider: str | None,
        *,
        reserve: bool,
    ) -> Request:
        """Count the call in the budgets; return the request with the limit that they set for its answer."""
        assert self.budgets is not None
        if not reserve:
            self.budgets.count(record.id, request, decision, price_provider=price_provider)
            return request
        bound = await self.budgets.reserve(
            record.id,
            request,
            decision,
            price_provider=price_provider,
            engine_context=None
            if isinstance(destination, Endpoint)
            else partial(engine_context, destination, decision.model),
        )
        if bound is None:
            return request
        with import_lock:
            from specclient.call.answer_limit import limited_request  # noqa: PLC0415 - with budgets

        return limited_request(request, bound.limit, decision.model)

    async def _with_running_server(
        self, opened: OpenedCall, server: EndpointServer, subcall: Subcall | None
    ) -> OpenedCall:
        """Start the server of a call's endpoint unless it runs; return the call with the server's address.

        The record's time begins once the server answers. A server that cannot be started fails the call,
        which is recorded.

        Raises:
            UnsupportedParameterError: the server refuses a parameter of the request; it is not started.
            ConfigurationError, EngineError: the server cannot be started, or has ended.
            DeadlineExceededError: it does not answer within the call's deadline; it goes on starting.
        """
        idle, record, begun_s = opened.destination, opened.record, self._clock()
        assert isinstance(idle, Endpoint)
        deadline_s = opened.request.options.deadline_s
        limit = TimeLimit(deadline_s)
        try:
            request = server.accepted(opened.request, idle)
            await self.ensure_transport()
            with limit:
                endpoint = await server.endpoint(idle)
        except TimeoutError as passed:
            late = server_deadline_error(server.title, deadline_s)
            failure: Exception = late if limit.expired else passed
            await self.close_record(record, failure, subcall)
            raise failure from None
        except BaseException as error:
            await self.close_record(record, error, subcall)
            raise
        record.note_server_ready(server.release)
        if deadline_s is not None:  # at least a millisecond, with which the transport reports the deadline
            left_s = max(deadline_s - (self._clock() - begun_s), 0.001)
            request = replace(request, options=replace(request.options, deadline_s=left_s))
        return OpenedCall(opened.decision, endpoint, record, request)

    async def _decide(self, request: Request) -> Decision:
        named = self.router.named(request)
        await self.ensure_ready(AUTO if named is None else named.provider)
        return self.router.decide(request) if named is None else named

    async def close_record(
        self, record: CallRecorder, error: BaseException | None = None, subcall: Subcall | None = None
    ) -> Call:
        """Close the record and call the observers, even if the caller has been cancelled."""
        if record.counts_long_prompt(error):
            with cancel_shield():
                await run_in_thread(record.count_prompt)
        call = record.close(error)
        if subcall is not None:
            call = subcall.finish(call, error)
        await self.report(call)
        return call

    async def report(self, call: Call) -> None:
        """Give a finished call to the observers, even if the caller has been cancelled."""
        await self.report_all((call,))

    async def report_all(self, calls: Sequence[Call]) -> None:
        """Give finished calls to the observers, even if the caller has been cancelled."""
        await observe_all(self.observers, calls)

    # Preparation, once for each kind of request

    async def ensure_ready(self, kind: str) -> None:
        """Prepare what requests of a kind need before the first one; see :meth:`Router.kind`."""
        if kind not in self._warm:
            await run_in_thread(lambda: self._warm_up(kind))
        if kind == AUTO and self._on_routed_call is not None:
            self._on_routed_call(self.router, self.transport)

    async def ensure_recording(self) -> None:
        """Prepare what the observers write to, before the first call that is recorded but not sent."""
        if self._warm <= _UNMETERED:
            await run_in_thread(self._prepare_recording)

    def _prepare_recording(self) -> None:
        with self._warm_lock, import_lock:
            self._prepare()
            self._warm.add(_NOT_SENT)

    async def ensure_transport(self) -> None:
        """Import the HTTP library before the first request to a method without a model."""
        if _NO_MODEL not in self._warm:
            await run_in_thread(self._prepare_transport)

    def _prepare_transport(self) -> None:
        with self._warm_lock, import_lock:
            self.transport.prepare()
            self._warm.add(_NO_MODEL)

    def warm_up(self, request: Request) -> None:
        """Prepare as :meth:`ensure_ready` does, in the thread of a synchronous caller."""
        if request.method.metered and (kind := self.router.kind(request)) not in self._warm:
            self._warm_up(kind)

    def _warm_up(self, kind: str) -> None:
        with self._warm_lock, import_lock:
            if kind not in self._warm:
                self._prepare()
                if self.router.warm_up(kind):
                    self.transport.prepare()
                self._warm.add(kind)


async def started(batches: AsyncGenerator[Any, None], meta: Callable[[], Call]) -> AsyncStream[Any]:
    """Return a stream once its answer has begun; an error that refuses the request is raised here."""
    http, dialect = await anext(batches)
    return AsyncStream(batches, meta, http, dialect)


def _translation() -> ModuleType:
    """Return the module that serves the Responses API over chat completions, which few programs need."""
    with import_lock:
        return importlib.import_module("specclient.call.responses.translation")
