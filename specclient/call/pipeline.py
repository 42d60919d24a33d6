"""The call pipeline: every request of a client passes through :class:`Pipeline`.

The steps of a call, in order:

1. ``execute`` (or ``stream``, ``stream_bytes``): calls whose route is chosen go to the failover executor
   (:mod:`specclient.call.failover.executor`), which makes one or more attempts; all others are one attempt.
   Calls on which no model works go to :mod:`specclient.call.unmetered` and are not recorded.
2. ``attempt``: a request with a strategy goes to the strategy executor
   (:mod:`specclient.call.strategies.executor`), which sends one or more sub-calls; all others are sent once.
3. ``send``: decide the destination, check the request's permit, open the record and reserve the budget
   (``open_record``); encode, send and decode (:mod:`specclient.call.metered`); close the record and
   hand it to the observers (``close_record``). The chunks of a stream are noted in the record on their way
   (:mod:`specclient.call.recorded_stream`).
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from specclient.call import metered, unmetered
from specclient.call.errors import bodiless_answer_error, strategy_bytes_error
from specclient.call.over_chat import is_over_chat
from specclient.call.recorded_stream import recorded_bytes, recorded_chunks
from specclient.call.recorder import CallRecorder
from specclient.call.result import CallResult, OpenedCall
from specclient.call.stored_methods import STORED_METHODS, is_answered_here
from specclient.call.stream import AsyncStream
from specclient.http_transport.http import Transport
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry, engine_context
from specclient.routing.router import AUTO, Router
from specclient.runtime.event_loop import cancel_shield, run_in_thread
from specclient.runtime.forks import import_lock, register_fork_reset
from specclient.types.call import Call, MeteredModel
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.route import Decision

if TYPE_CHECKING:
    from specclient.budgets.budgets import Budgets
    from specclient.call.failover.executor import FailoverExecutor, FailoverState
    from specclient.call.responses.keeper import ResponseKeeper
    from specclient.call.responses.stored_answers import StoredAnswers
    from specclient.call.strategies.executor import StrategyExecutor
    from specclient.call.subcalls import Subcall
    from specclient.stored.store import ObjectStore

_log = logging.getLogger("specclient")
_NOT_RECORDED = "a finished call could not be recorded"

#: Receives a finished call; returns what the caller of the call waits for, None for nothing.
Observer = Callable[[Call], Awaitable[None] | None]


def _nothing_stored() -> None:
    return None


class Pipeline:
    """Serves the requests of one client.

    Args:
        router: chooses the destination of a request.
        transport: sends encoded requests over HTTP.
        prices: computes what a call cost.
        observers: called with each finished call, in order; the call then waits for what they return. An
            exception is logged and does not affect the call.
        failover_state: returns the state of routed calls, which copies of a client share.
        prepare: called in a thread before the first request, to open what observers write to. An exception
            refuses the request.
        budgets: refuse a request that may exceed a budget, before it is sent; None for no budgets. They
            release a reservation when, as an observer, they receive the call's record.
        warm: the kinds of request that are prepared already, which copies of a client share; see
            :meth:`Router.kind`.
        on_routed_call: called before each call whose route is chosen.
        stored: returns the stored responses and conversations; None if nothing is stored.
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
        stored: Callable[[], ObjectStore | None] = _nothing_stored,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.router = router
        self.transport = transport
        self._prices = prices
        self.observers = list(observers)
        self._prepare = prepare
        self.budgets = budgets
        self._warm: set[str] = set() if warm is None else warm
        self._warm_lock = threading.Lock()
        self._on_routed_call = on_routed_call
        self._failover_state = failover_state
        self._clock = clock
        self._stored_source = stored
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

    # Entry points

    async def call(self, request: Request) -> Any:
        """Serve a request and return the decoded answer."""
        return (await self.execute(request)).unwrap()

    async def execute(self, request: Request) -> CallResult:
        """Serve a request and return its complete answer with the HTTP response.

        A response that cannot be decoded is an error in the result and is not raised: callers that want the
        raw response still get it.
        """
        if not request.method.metered:
            if self._is_answered_here(request):
                return await self._stored.execute(request)
            return await unmetered.execute(request, self.destinations, self.transport)
        if request.operation == "response":
            return await self._keeper.execute(request, self._execute)
        return await self._execute(request)

    async def _execute(self, request: Request) -> CallResult:
        if self._is_routed(request):
            return await self._failover.execute(request)
        return await self.attempt(request)

    async def stream(self, request: Request) -> AsyncStream[Any]:
        """Serve a request as a stream of chunks or events; return once the answer has begun."""
        if not request.method.metered:
            if self._is_answered_here(request):
                return await self._started(self._stored.stream(request), _no_call)
            return await self._started(unmetered.stream(request, self.destinations, self.transport), _no_call)
        if request.operation == "response":
            return await self._keeper.stream(request, self._stream)
        return await self._stream(request)

    async def _stream(self, request: Request) -> AsyncStream[Any]:
        if self._is_routed(request):
            return await self._failover.stream(request)
        return await self.attempt_stream(request)

    async def stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        """Serve a request as the bytes of the response's body; return once the answer has begun."""
        if request.strategy is not None:
            raise strategy_bytes_error()
        if not request.method.metered:
            if self._is_answered_here(request):
                raise bodiless_answer_error()
            return await self._started(
                unmetered.stream_bytes(request, self.destinations, self.transport), _no_call
            )
        if request.operation == "response":
            return await self._keeper.stream_bytes(request, self._stream_bytes)
        return await self._stream_bytes(request)

    async def _stream_bytes(self, request: Request) -> AsyncStream[bytes]:
        if self._is_routed(request):
            return await self._failover.stream_bytes(request)
        return await self.attempt_bytes(request)

    def _is_answered_here(self, request: Request) -> bool:
        return request.method.name in STORED_METHODS and is_answered_here(request, self.destinations)

    @cached_property
    def _keeper(self) -> ResponseKeeper:
        """Keeps responses; imported with the first one."""
        with import_lock:
            from specclient.call.responses.keeper import ResponseKeeper  # noqa: PLC0415

        return ResponseKeeper(lambda: self.router, self._stored_source)

    @cached_property
    def _stored(self) -> StoredAnswers:
        """Answers calls to what is stored here; imported with the first one."""
        with import_lock:
            from specclient.call.responses.stored_answers import StoredAnswers  # noqa: PLC0415

        return StoredAnswers(self._stored_source)

    async def list_models(self, provider: str | None = None) -> list[Model]:
        """List the models of an endpoint or an engine; None for the default endpoint."""
        return await unmetered.list_models(provider, self.destinations, self.transport)

    def _is_routed(self, request: Request) -> bool:
        """Return whether the request's route is chosen; the common case, a named model, is decided first."""
        is_named = request.policy is None and not self.router.names_auto(request)
        return not is_named and self.router.kind(request) == AUTO

    @cached_property
    def _failover(self) -> FailoverExecutor:
        """Executes routed calls; imported with the first one."""
        with import_lock:
            from specclient.call.failover.executor import FailoverExecutor  # noqa: PLC0415

        return FailoverExecutor(self, self._failover_state(), clock=self._clock)

    # One attempt: with the request's strategy, or sent as it is

    async def attempt(self, request: Request, subcall: Subcall | None = None) -> CallResult:
        """Serve a request at one destination, with its strategy if it has one."""
        if request.strategy is not None:
            return await self._strategies.execute(request, subcall)
        return await self.send(request, subcall)

    async def attempt_stream(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request as a stream at one destination, with its strategy if it has one."""
        if request.strategy is not None:
            return await self._strategies.stream(request, subcall)
        return await self.send_stream(request, subcall)

    async def attempt_bytes(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[bytes]:
        """Serve a request as the bytes of its body at one destination; strategies are not supported."""
        decision, destination, record, request = await self.open_record(request, subcall)
        source = metered.stream_bytes(request, decision, destination, record, self.transport)
        close = partial(self.close_record, record, subcall=subcall)
        return await self._started(recorded_bytes(source, close), record.snapshot)

    @cached_property
    def _strategies(self) -> StrategyExecutor:
        """Executes strategies; imported with the first request that has one."""
        from specclient.call.strategies.cost_benefit import PredictionHistory  # noqa: PLC0415
        from specclient.call.strategies.executor import StrategyExecutor  # noqa: PLC0415

        return StrategyExecutor(self, self._prices, PredictionHistory(), clock=self._clock)

    # One recorded call

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
        if isinstance(result.value, MeteredModel):
            result.value.attach_meta(call)
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
        return await self._started(chunks, meta)

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
        if permit is not None:  # here, because every attempt of every call passes
            permit.check(decision.provider, decision.model)
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
        if self.budgets is not None and reserve:
            bound = await self.budgets.reserve(
                record.id,
                request,
                decision,
                price_provider=price_provider,
                engine_context=None
                if isinstance(destination, Endpoint)
                else partial(engine_context, destination, decision.model),
            )
            if bound is not None:
                with import_lock:
                    from specclient.call.answer_limit import limited_request  # noqa: PLC0415 - with budgets

                request = limited_request(request, bound.limit, decision.model)
        elif self.budgets is not None:
            self.budgets.count(record.id, request, decision, price_provider=price_provider)
        if "opentelemetry.trace" in sys.modules:
            with import_lock:
                from specclient.call.tracing import begin_span  # noqa: PLC0415 - only in programs that trace

            record.span = begin_span(request, decision, endpoint)
        return OpenedCall(decision, destination, record, request)

    async def _decide(self, request: Request) -> Decision:
        named = self.router.named(request)
        await self.ensure_ready(AUTO if named is None else named.provider)
        return self.router.decide(request) if named is None else named

    async def _started(
        self, batches: AsyncGenerator[Any, None], meta: Callable[[], Call]
    ) -> AsyncStream[Any]:
        """Return a stream once its answer has begun; an error that refuses the request is raised here."""
        http, dialect = await anext(batches)
        return AsyncStream(batches, meta, http, dialect)

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
        waiting = [rest for observe in self.observers if (rest := _observed(observe, call)) is not None]
        if waiting:
            with cancel_shield():
                for rest in waiting:
                    try:
                        await rest
                    except Exception:  # noqa: BLE001 - as in `_observed`
                        _log.exception(_NOT_RECORDED)
        return call

    # Preparation, once for each kind of request

    async def ensure_ready(self, kind: str) -> None:
        """Prepare what requests of a kind need before the first one; see :meth:`Router.kind`."""
        if kind not in self._warm:
            await run_in_thread(lambda: self._warm_up(kind))
        if kind == AUTO and self._on_routed_call is not None:
            self._on_routed_call(self.router, self.transport)

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


def _observed(observe: Observer, call: Call) -> Awaitable[None] | None:
    """Call an observer; return what the call waits for."""
    try:
        return observe(call)
    except Exception:  # noqa: BLE001 - an answer that was paid for is not lost over its record
        _log.exception(_NOT_RECORDED)
    return None


def _translation() -> ModuleType:
    """Return the module that serves the Responses API over chat completions, which few programs need."""
    with import_lock:
        return importlib.import_module("specclient.call.responses.translation")


def _no_call() -> Call:
    raise AttributeError("no model worked on this call, so it has no record")
