"""A request's walk, in order: decide, encode, send, decode, record.

The local engine takes the place of encode, send and decode; everything else is the same for both.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from anyio import CancelScope, to_thread

from specclient.costs.prices import Prices
from specclient.errors import APIConnectionError
from specclient.providers import DIALECTS, Dialect, Endpoint, usage_requested
from specclient.record import Recorder
from specclient.routing.places import Place
from specclient.routing.router import Router
from specclient.stream import AsyncStream
from specclient.transport.http import Transport
from specclient.types.backend import Answer, Backend, Chunk, Telemetry
from specclient.types.call import Call
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.route import Decision

_log = logging.getLogger("specclient")

Observer = Callable[[Call], Awaitable[None]]


class Pipeline:
    """Serves requests.

    Args:
        router: chooses the place that serves a request.
        transport: sends what a dialect encoded.
        prices: what a call cost.
        observers: told of each finished call, in order; one that raises is logged and breaks nothing.
        prepare: opens what observers write to; called in a thread before a first request, and may refuse it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        router: Router,
        transport: Transport,
        prices: Prices,
        observers: Sequence[Observer],
        *,
        prepare: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.router = router
        self._transport = transport
        self._prices = prices
        self._observers = observers
        self._prepare = prepare
        self._warm: set[str] = set()
        self._warming = threading.Lock()
        self._clock = clock

    async def chat(self, request: Request) -> ChatCompletion:
        """Answer a conversation whole."""
        return cast("ChatCompletion", await self._whole(request))

    async def completion(self, request: Request) -> Completion:
        """Continue a text whole."""
        return cast("Completion", await self._whole(request))

    async def stream_chat(self, request: Request) -> AsyncStream[ChatCompletionChunk]:
        """Answer a conversation in chunks; returns once the answer has begun."""
        return cast("AsyncStream[ChatCompletionChunk]", await self._streamed(request))

    async def stream_completion(self, request: Request) -> AsyncStream[Completion]:
        """Continue a text in chunks; returns once the answer has begun."""
        return cast("AsyncStream[Completion]", await self._streamed(request))

    async def models(self, provider: str | None = None) -> list[Model]:
        """List what an endpoint or an engine serves; the default endpoint's where none is named."""
        places = self.router.places
        name = provider or places.default
        place = places.get(name)
        if isinstance(place, Endpoint):
            reply = await self._transport.fetch(place.dialect.encode_models(place))
            return place.dialect.decode_models(reply)
        return [Model(id=f"{name}/{model.id}", owned_by=name) for model in place.models()]

    async def _whole(self, request: Request) -> Answer:
        decision, place, record = await self._begin(request)
        try:
            if isinstance(place, Endpoint):
                answer = await self._fetch(request, decision, place, record)
            else:
                answer, measured = await place.complete(_in_process(request), decision.model)
                record.telemetry(measured)
            record.answer(answer, _dialect(place).usage(answer))
        except BaseException as error:
            await self._end(record, error)
            raise
        answer._meta = await self._end(record)
        return answer

    async def _streamed(self, request: Request) -> AsyncStream[Chunk]:
        decision, place, record = await self._begin(request)
        if isinstance(place, Endpoint):
            source = self._hosted(request, decision, place, record)
        else:
            source = self._local(request, decision, place, record)
        chunks = self._watched(source, request, place, record)
        await anext(chunks)  # until the answer has begun: what refuses a request is raised here
        return AsyncStream(cast("AsyncGenerator[Chunk, None]", chunks), record.snapshot)

    async def _begin(self, request: Request) -> tuple[Decision, Place, Recorder]:
        kind = self.router.kind(request)
        if kind not in self._warm:
            await to_thread.run_sync(self._warm_up, kind)
        decision = self.router.decide(request)
        place = self.router.places.get(decision.provider)
        hosted = isinstance(place, Endpoint)
        record = Recorder(
            request,
            decision,
            self._prices,
            clock=self._clock,
            hosted=hosted,
            price_provider=place.price_provider if isinstance(place, Endpoint) else None,
        )
        return decision, place, record

    def _warm_up(self, kind: str) -> None:
        """Do what the first request of a kind needs before anything is sent; the first of several does it."""
        with self._warming:
            if kind not in self._warm:
                self._prepare()
                self.router.warm(kind)
                self._warm.add(kind)

    async def _fetch(self, request: Request, decision: Decision, place: Endpoint, record: Recorder) -> Answer:
        reply = await self._transport.fetch(place.dialect.encode(request, place, decision.model))
        record.connected(reply.attempts, reply.request_id)
        return place.dialect.decode(request.operation, reply)

    async def _hosted(
        self, request: Request, decision: Decision, place: Endpoint, record: Recorder
    ) -> AsyncGenerator[Chunk | None, None]:
        """Yield None once the endpoint has answered, then its chunks."""
        wire = place.dialect.encode(request, place, decision.model)
        async with self._transport.stream(wire) as events:
            record.connected(events.attempts, events.request_id)
            yield None
            async for event in events:
                chunk = place.dialect.decode_event(request.operation, event.data, event.event)
                if chunk is not None:
                    yield chunk

    async def _local(
        self, request: Request, decision: Decision, place: Backend, record: Recorder
    ) -> AsyncGenerator[Chunk | None, None]:
        """Yield None once the engine has taken the request, then its chunks."""
        begun = False
        async with aclosing(place.stream(_in_process(request), decision.model)) as items:
            async for item in items:
                if not begun:
                    begun = True
                    yield None
                if isinstance(item, Telemetry):
                    record.telemetry(item)
                else:
                    yield item

    async def _watched(
        self, source: AsyncGenerator[Chunk | None, None], request: Request, place: Place, record: Recorder
    ) -> AsyncGenerator[Chunk | None, None]:
        """Note every chunk, pass on what the caller asked for, and end the record however the source ends."""
        usage_of = _dialect(place).usage
        withhold = not usage_requested(request)
        try:
            async with aclosing(source):
                async for chunk in source:
                    if chunk is not None:
                        record.chunk(chunk, usage_of(chunk))
                        if withhold and not chunk.choices and chunk.usage is not None:
                            continue
                    yield chunk
        except BaseException as error:
            if isinstance(error, APIConnectionError) and error.partial is None:
                error.partial = record.text or None
            await self._end(record, error)
            raise
        await self._end(record)

    async def _end(self, record: Recorder, error: BaseException | None = None) -> Call:
        """Close the record and tell the observers, even where the caller has been cancelled."""
        call = record.close(error)
        with CancelScope(shield=True):
            for observe in self._observers:
                try:
                    await observe(call)
                except Exception:  # noqa: BLE001 - an answer that has been paid for is not lost over its record
                    _log.exception("a finished call could not be recorded")
        return call


def _dialect(place: Place) -> Dialect:
    """Return how a place's usage is read: what engines answer with is shaped as OpenAI's."""
    return place.dialect if isinstance(place, Endpoint) else DIALECTS["openai"]


def _in_process(request: Request) -> Request:
    """Return a request as engines take it: ``extra_body`` merged, usage always asked for."""
    params = {**request.params, **request.options.body}
    if request.stream:
        params["stream_options"] = {**(params.get("stream_options") or {}), "include_usage": True}
    return replace(request, params=params)
