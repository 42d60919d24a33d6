"""Turn a call with a strategy into the calls it is played by, each a whole walk of its own, and their sum."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from specclient.call import strategies
from specclient.call.decode import CallResult
from specclient.call.strategies import PredictionHistory, StrategyContext
from specclient.call.stream import AsyncStream
from specclient.call.subcalls import ParentCall, StrategyPipeline, Subcall, account
from specclient.errors import APIConnectionError, DeadlineExceededError
from specclient.prices.prices import Prices
from specclient.providers import Endpoint
from specclient.routing.choose.decisions import named_decision
from specclient.types.call import Call, CallPurpose, CallStatus, MeteredModel
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.strategy import StrategyKind


class StrategyExecutor:
    """Plays strategies over single calls.

    Args:
        pipeline: serves them.
        prices: what a prediction's rejected tokens may cost.
        history: how predictions have fared.
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

    async def execute(self, request: Request, part: Subcall | None = None) -> CallResult:
        """Serve a request whole; see :meth:`specclient.call.pipeline.Pipeline.attempt`."""
        kind, table, whole, target = await self._lay(request, part)
        if kind == "direct":
            return await self._pipeline.send(table.request, _direct(table, whole.route, part))
        value = await strategies.whole(kind, table)
        latency_s = self._clock() - whole.begun
        if isinstance(value, MeteredModel):
            value.attach_meta(
                _account(whole, table, status="ok", latency_s=latency_s, ttft_s=None, error=None)
            )
        came = target.last if table.outcome.unaltered else None
        return CallResult(value) if came is None else replace(came, value=value)

    async def stream(self, request: Request, part: Subcall | None = None) -> AsyncStream[Any]:
        """Serve a request as a stream; see :meth:`specclient.call.pipeline.Pipeline.attempt_stream`."""
        kind, table, whole, _ = await self._lay(request, part)
        if kind == "direct":
            return await self._pipeline.send_stream(table.request, _direct(table, whole.route, part))
        playing = _StrategyStream(kind, table, whole, self._clock)
        batches = playing.batches()
        head, dialect = await anext(batches)
        return AsyncStream(batches, playing.meta, head, dialect)

    async def _lay(
        self, request: Request, part: Subcall | None
    ) -> tuple[StrategyKind, StrategyContext, ParentCall, _SubcallClient]:
        """Decide the route, where that has not been done, then, by what is known of it, the strategy."""
        strategy = strategies.requested_strategy(request)
        plain = replace(request, strategy=None)
        router = self._pipeline.router
        if part is None or part.route is None:
            await self._pipeline.ensure_ready(router.kind(plain))
            route = router.decide(plain)
        else:
            route = part.route
        draft = None if strategy.draft is None else await self._named(strategy.draft)
        place = router.destinations.get(route.provider)
        endpoint = place if isinstance(place, Endpoint) else None
        over = None if part is None else part.whole
        whole = ParentCall(
            id=uuid.uuid4().hex if over is None else over.id,
            kind=strategy.kind,
            request=plain,
            route=route,
            started_at=datetime.now(UTC),
            begun=self._clock(),
            parts=[] if over is None else over.parts,
        )
        pair = None if draft is None else f"{route.chosen}+{draft.chosen}"
        target = _SubcallClient(self._pipeline, whole, route, self._clock, purpose="verify", pair=pair)
        table = StrategyContext(
            request=plain,
            strategy=strategy,
            endpoint=endpoint,
            model=route.model,
            capabilities=strategies.LOCAL_ENGINE_CAPABILITIES
            if endpoint is None
            else endpoint.capabilities_of(route.model),
            target=target,
            draft=None
            if draft is None
            else _SubcallClient(self._pipeline, whole, draft, self._clock, purpose="draft", pair=pair),
            clock=self._clock,
            created=whole.started_at,
            price=lambda tokens: self._price(tokens, route, endpoint),
            history=self._history,
        )
        whole.kind = strategies.choose_kind(table)
        return whole.kind, table, whole, target

    async def _named(self, model: str) -> Decision:
        """Return the route of a draft model: a known place before the slash counts, whatever owns names."""
        places = self._pipeline.router.destinations
        head, _, rest = model.partition("/")
        provider, name = (head, rest) if rest and places.known(head) else places.split(model)
        await self._pipeline.ensure_ready(provider)
        return named_decision(f"{provider}/{name}", provider, name)

    def _price(self, tokens: int, route: Decision, endpoint: Endpoint | None) -> Decimal | None:
        listed = None if endpoint is None else endpoint.price_provider
        million = 1_000_000
        both = self._prices.predict(0, million, route.provider, route.model, price_provider=listed)
        return None if both is None else both * tokens / million


class _SubcallClient:
    """Serves the parts of one call at one model; see :class:`specclient.call.strategies.Server`."""

    def __init__(
        self,
        pipeline: StrategyPipeline,
        whole: ParentCall,
        route: Decision,
        clock: Callable[[], float],
        *,
        purpose: CallPurpose,
        pair: str | None,
    ) -> None:
        self._pipeline = pipeline
        self._whole = whole
        self._route = route
        self._clock = clock
        self._purpose = purpose
        self._pair = pair
        self.last: CallResult | None = None

    async def whole(self, request: Request) -> Any:
        self.last = await self._pipeline.send(self._timed(replace(request, stream=False)), self._part())
        return self.last.unwrap()

    async def stream(self, request: Request) -> AsyncStream[Any]:
        return await self._pipeline.send_stream(self._timed(replace(request, stream=True)), self._part())

    def _part(self) -> Subcall:
        return Subcall(
            kind=self._whole.kind,
            whole=self._whole,
            route=self._route,
            purpose=self._purpose,
            pair=self._pair,
        )

    def _timed(self, request: Request) -> Request:
        """Return a request with what is left of the whole's deadline.

        Raises:
            DeadlineExceededError: nothing is.
        """
        limit = self._whole.request.options.deadline_s
        if limit is None:
            return request
        left = limit - (self._clock() - self._whole.begun)
        if left <= 0:
            raise DeadlineExceededError(
                message=f"deadline_s={limit} is over; the strategy's calls took it all"
            )
        return replace(request, options=replace(request.options, deadline_s=left))


class _StrategyStream:
    """One stream of a strategy, and its record while it runs."""

    def __init__(
        self, kind: StrategyKind, table: StrategyContext, whole: ParentCall, clock: Callable[[], float]
    ) -> None:
        self._kind = kind
        self._table = table
        self._whole = whole
        self._clock = clock
        self._ttft_s: float | None = None
        self._closed: Call | None = None
        self._texts: list[str] = []

    def meta(self) -> Call:
        """Return the record, complete once the stream has ended."""
        return self._closed or self._account("open", None)

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield the head once the answer has begun, then the chunks."""
        begun = False
        try:
            async with aclosing(strategies.stream(self._kind, self._table)) as source:
                async for batch in source:
                    if not begun:
                        begun = True
                        yield self._table.outcome.http, self._table.outcome.dialect
                    self._note(batch)
                    yield batch
            if not begun:  # an answer of nothing is one, too
                yield self._table.outcome.http, self._table.outcome.dialect
        except BaseException as error:
            if isinstance(error, APIConnectionError) and self._texts:
                error.partial = "".join(self._texts)
            failed = isinstance(error, Exception)
            self._closed = self._account(
                "error" if failed else "cancelled", type(error).__name__ if failed else None
            )
            raise
        self._closed = self._account("ok", None)

    def _note(self, batch: list[Any]) -> None:
        for chunk in batch:
            for choice in chunk.choices:
                delta = getattr(choice, "delta", None)
                text = getattr(choice, "text", None) if delta is None else delta.content
                if isinstance(text, str) and text:
                    if not choice.index:
                        self._texts.append(text)
                    if self._ttft_s is None:
                        self._ttft_s = self._clock() - self._whole.begun

    def _account(self, status: CallStatus, error: str | None) -> Call:
        latency_s = self._clock() - self._whole.begun
        return _account(
            self._whole,
            self._table,
            status=status,
            latency_s=latency_s,
            ttft_s=self._ttft_s,
            error=error,
        )


def _account(whole: ParentCall, table: StrategyContext, **ended: Any) -> Call:
    outcome = table.outcome
    return account(whole, speculation=outcome.speculation, reason="; ".join(outcome.notes) or None, **ended)


def _direct(table: StrategyContext, route: Decision, part: Subcall | None) -> Subcall:
    reason = "; ".join(table.outcome.notes)
    return replace(part or Subcall(), kind="direct", reason=reason, route=route)
