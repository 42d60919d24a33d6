"""The strategy executor: serves a call with a strategy by one or more sub-calls, and sums their records."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from specclient.call.request_params import capabilities_of, with_remaining_deadline
from specclient.call.result import CallResult
from specclient.call.strategies import prediction, prefill
from specclient.call.strategies.context import StrategyContext
from specclient.call.strategies.cost_benefit import PredictionHistory
from specclient.call.strategies.remote import strategy as remote
from specclient.call.strategies.selection import choose_kind, requested_strategy
from specclient.call.stream import AsyncStream
from specclient.call.subcalls import ParentCall, Subcall, parent_record
from specclient.errors import APIConnectionError
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.routing.choose.decisions import named_decision
from specclient.routing.router import Router
from specclient.types.call import Call, CallPurpose, CallStatus, MeteredModel
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.strategy import StrategyKind


class _StrategyFunctions(NamedTuple):
    complete: Callable[[StrategyContext], Awaitable[Any]]
    stream: Callable[[StrategyContext], AsyncGenerator[list[Any], None]]


_STRATEGIES: Mapping[StrategyKind, _StrategyFunctions] = {
    "prediction": _StrategyFunctions(prediction.complete, prediction.stream),
    "prefill": _StrategyFunctions(prefill.complete, prefill.stream),
    "remote": _StrategyFunctions(remote.complete, remote.stream),
}


class StrategyPipeline(Protocol):
    """The methods of :class:`specclient.call.pipeline.Pipeline` that send and record a single request."""

    router: Router

    async def send(self, request: Request, subcall: Subcall) -> CallResult:
        """Send a request and return its complete answer."""
        ...

    async def send_stream(self, request: Request, subcall: Subcall) -> AsyncStream[Any]:
        """Send a request as a stream; return once the answer has begun."""
        ...

    async def ensure_ready(self, kind: str) -> None:
        """Prepare what requests of a kind need before the first one."""
        ...


class StrategyExecutor:
    """Serves calls that have a strategy.

    Args:
        pipeline: sends single requests.
        prices: gives the price of a prediction's rejected tokens.
        history: acceptance of earlier predictions.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pipeline: StrategyPipeline,
        prices: Prices,
        history: PredictionHistory,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline = pipeline
        self._prices = prices
        self._history = history
        self._clock = clock

    async def execute(self, request: Request, subcall: Subcall | None = None) -> CallResult:
        """Serve a request; see :meth:`specclient.call.pipeline.Pipeline.attempt`."""
        kind, context, parent, target = await self._prepare(request, subcall)
        if kind == "direct":
            return await self._pipeline.send(context.request, _direct(context, parent.route, subcall))
        value = await _STRATEGIES[kind].complete(context)
        latency_s = self._clock() - parent.started_s
        if isinstance(value, MeteredModel):
            value.attach_meta(_record(parent, context, status="ok", latency_s=latency_s))
        last = target.last if context.outcome.passed_through else None
        return CallResult(value) if last is None else replace(last, value=value)

    async def stream(self, request: Request, subcall: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`specclient.call.pipeline.Pipeline.attempt_stream`."""
        kind, context, parent, _ = await self._prepare(request, subcall)
        if kind == "direct":
            return await self._pipeline.send_stream(context.request, _direct(context, parent.route, subcall))
        stream = _StrategyStream(kind, context, parent, self._clock)
        batches = stream.batches()
        http, dialect = await anext(batches)
        return AsyncStream(batches, stream.meta, http, dialect)

    async def _prepare(
        self, request: Request, subcall: Subcall | None
    ) -> tuple[StrategyKind, StrategyContext, ParentCall, _SubcallClient]:
        """Decide the route, unless the sub-call states it, then the kind of strategy for it."""
        strategy = requested_strategy(request)
        request = replace(request, strategy=None)
        router = self._pipeline.router
        if subcall is None or subcall.route is None:
            await self._pipeline.ensure_ready(router.kind(request))
            route = router.decide(request)
        else:
            route = subcall.route
        draft_route = None if strategy.draft is None else await self._draft_route(strategy.draft)
        destination = router.destinations.of_model(route.provider, route.model)
        endpoint = destination if isinstance(destination, Endpoint) else None
        outer = None if subcall is None else subcall.parent
        parent = ParentCall(
            id=uuid.uuid4().hex if outer is None else outer.id,
            strategy=strategy.kind,
            request=request,
            route=route,
            started_at=datetime.now(UTC),
            started_s=self._clock(),
            parts=[] if outer is None else outer.parts,
        )
        pair = None if draft_route is None else f"{route.chosen}+{draft_route.chosen}"
        target = _SubcallClient(self._pipeline, parent, route, self._clock, purpose="verify", pair=pair)
        draft = None
        if draft_route is not None:
            draft = _SubcallClient(
                self._pipeline, parent, draft_route, self._clock, purpose="draft", pair=pair
            )
        context = StrategyContext(
            request=request,
            strategy=strategy,
            endpoint=endpoint,
            model=route.model,
            capabilities=capabilities_of(destination, route.model),
            target=target,
            draft=draft,
            clock=self._clock,
            created_at=parent.started_at,
            generation_price=lambda tokens: self._generation_price(tokens, route, endpoint),
            history=self._history,
        )
        parent.strategy = choose_kind(context)
        return parent.strategy, context, parent, target

    async def _draft_route(self, model: str) -> Decision:
        """Return the route of a draft model.

        A known provider before the slash is used even if the client's base URL owns all model names.
        """
        destinations = self._pipeline.router.destinations
        head, _, rest = model.partition("/")
        provider, name = (head, rest) if rest and destinations.known(head) else destinations.split(model)
        await self._pipeline.ensure_ready(provider)
        return named_decision(f"{provider}/{name}", provider, name)

    def _generation_price(self, tokens: int, route: Decision, endpoint: Endpoint | None) -> Decimal | None:
        price_provider = None if endpoint is None else endpoint.price_provider
        million = 1_000_000
        price = self._prices.predict(0, million, route.provider, route.model, price_provider=price_provider)
        return None if price is None else price * tokens / million


class _SubcallClient:
    """Sends the sub-calls of one parent to one model; see :class:`ModelClient`."""

    def __init__(
        self,
        pipeline: StrategyPipeline,
        parent: ParentCall,
        route: Decision,
        clock: Callable[[], float],
        *,
        purpose: CallPurpose,
        pair: str | None,
    ) -> None:
        self._pipeline = pipeline
        self._parent = parent
        self._clock = clock
        self._subcall_fields: dict[str, Any] = {"route": route, "purpose": purpose, "pair": pair}
        self.last: CallResult | None = None

    async def complete(self, request: Request) -> Any:
        request = self._with_parent_options(replace(request, stream=False))
        self.last = await self._pipeline.send(request, self._subcall())
        return self.last.unwrap()

    async def stream(self, request: Request) -> AsyncStream[Any]:
        request = self._with_parent_options(replace(request, stream=True))
        return await self._pipeline.send_stream(request, self._subcall())

    def _subcall(self) -> Subcall:
        return Subcall(strategy=self._parent.strategy, parent=self._parent, **self._subcall_fields)

    def _with_parent_options(self, request: Request) -> Request:
        """Return a request with the parent's owner, permit, origin and remaining deadline."""
        own = self._parent.request.options
        if own.owner or own.permit is not None or own.origin is not None or own.deadline_s is not None:
            options = replace(request.options, owner=own.owner, permit=own.permit, origin=own.origin)
            if own.deadline_s is not None:
                options = replace(options, deadline_s=own.deadline_s)
            request = replace(request, options=options)
        if own.deadline_s is None:
            return request
        elapsed_s = self._clock() - self._parent.started_s
        return with_remaining_deadline(request, elapsed_s, spent_on="the strategy's calls")


class _StrategyStream:
    """The stream of a strategy, and its record while it runs."""

    def __init__(
        self,
        kind: StrategyKind,
        context: StrategyContext,
        parent: ParentCall,
        clock: Callable[[], float],
    ) -> None:
        self._kind = kind
        self._context = context
        self._parent = parent
        self._clock = clock
        self._ttft_s: float | None = None
        self._closed: Call | None = None
        self._texts: list[str] = []  # of the first choice

    def meta(self) -> Call:
        """Return the record, complete once the stream has ended."""
        return self._closed or self._record("open", None)

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield ``(response, dialect)`` once the answer has begun, then lists of chunks."""
        outcome = self._context.outcome
        started = False
        try:
            async with aclosing(_STRATEGIES[self._kind].stream(self._context)) as source:
                async for batch in source:
                    if not started:
                        started = True
                        yield outcome.http, outcome.dialect
                    self._note(batch)
                    yield batch
            if not started:  # an empty answer
                yield outcome.http, outcome.dialect
        except BaseException as error:
            if isinstance(error, APIConnectionError) and self._texts:
                error.partial = "".join(self._texts)
            failed = isinstance(error, Exception)
            self._closed = self._record(
                "error" if failed else "cancelled", type(error).__name__ if failed else None
            )
            raise
        self._closed = self._record("ok", None)

    def _note(self, batch: list[Any]) -> None:
        """Keep the text of a batch, and note when the first text arrives."""
        for chunk in batch:
            for choice in chunk.choices:
                delta = getattr(choice, "delta", None)
                text = getattr(choice, "text", None) if delta is None else delta.content
                if isinstance(text, str) and text:
                    if not choice.index:
                        self._texts.append(text)
                    if self._ttft_s is None:
                        self._ttft_s = self._clock() - self._parent.started_s

    def _record(self, status: CallStatus, error: str | None) -> Call:
        latency_s = self._clock() - self._parent.started_s
        return _record(
            self._parent,
            self._context,
            status=status,
            latency_s=latency_s,
            ttft_s=self._ttft_s,
            error=error,
        )


def _record(
    parent: ParentCall,
    context: StrategyContext,
    *,
    status: CallStatus,
    latency_s: float,
    ttft_s: float | None = None,
    error: str | None = None,
) -> Call:
    outcome = context.outcome
    return parent_record(
        parent,
        status=status,
        latency_s=latency_s,
        ttft_s=ttft_s,
        error=error,
        speculation=outcome.speculation,
        strategy_reason="; ".join(outcome.notes) or None,
    )


def _direct(context: StrategyContext, route: Decision, subcall: Subcall | None) -> Subcall:
    """Return the sub-call of a request that is sent without a strategy."""
    reason = "; ".join(context.outcome.notes)
    return replace(subcall or Subcall(), strategy="direct", strategy_reason=reason, route=route)
