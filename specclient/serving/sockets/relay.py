"""The relay of a WebSocket between a client and a provider, with the calls in it recorded.

Each direction has a task that reads a message only after it has written the previous one, so that a slow
reader slows its writer down. Messages of the client that request a response pass the same checks as any call
(key, models, rate limits, permit, budget); a refused one is answered with an error event, and the connection
stays open. Messages of the provider are not changed. When one side closes, the relay closes the other side
with the same code.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from websockets.exceptions import ConnectionClosed

from specclient.call.websocket.meter import CREATE, SocketMeter
from specclient.call.websocket.methods import METERED_SOCKETS
from specclient.call.websocket.opening import handshake, open_at, socket_endpoint
from specclient.call.websocket.session_facts import SessionFacts
from specclient.errors import OpenAIError
from specclient.http_transport.websocket import ClientConnection, closed_error
from specclient.openai_http.errors import ServingError, bad_request, exception_summary, serving_error_of
from specclient.openai_http.json_body import json_object
from specclient.providers import Endpoint
from specclient.serving.calls.gate import CallGate
from specclient.serving.exchange import HTTPExchange
from specclient.serving.keys.limiter import LimitTicket
from specclient.serving.limits import Limits
from specclient.serving.sockets.messages import ClientSocket, closing_code
from specclient.types.api_method import ApiMethod
from specclient.types.call import Call
from specclient.types.named import reader
from specclient.types.request import PerCallOptions, Request

__all__ = ["SocketRelay"]

_log = logging.getLogger("specclient")

#: Messages of the provider that are read ahead of a client that reads slowly.
_READ_AHEAD = 4
_EVENTS = {
    "realtime.connect": "realtime.RealtimeServerEvent",
    "responses.connect": "responses.ResponseStreamEvent",
}
_GOING_AWAY, _INTERNAL = 1001, 1011


class SocketRelay:
    """Passes the messages of one WebSocket on.

    Args:
        gate: checks keys and models.
        exchange: the handshake.
        client: the client's side.
        name: the ``connect`` method: ``realtime.connect`` or ``responses.connect``.
        query: parameters of the handshake that are passed on.
        options: headers that are passed on, and the permit.
        limits: limits of the server.
    """

    def __init__(
        self,
        gate: CallGate,
        exchange: HTTPExchange,
        client: ClientSocket,
        *,
        name: str,
        query: Mapping[str, str],
        options: PerCallOptions,
        limits: Limits,
    ) -> None:
        self._gate, self._exchange, self._client = gate, exchange, client
        self._name, self._query, self._options, self._limits = name, query, options, limits
        self._method = METERED_SOCKETS[name]
        self._parse = reader(_EVENTS[name])
        self._endpoint: Endpoint | None = None
        self._provider: ClientConnection | None = None
        self._meter: SocketMeter | None = None
        self._tickets: deque[LimitTicket] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._close: tuple[int, str] = (_GOING_AWAY, "")

    async def connect(self, request: Request) -> ClientConnection:
        """Open the connection to the provider of an authorized request's model, and return it.

        Raises:
            OpenAIError: the model is not permitted, or the provider refuses the connection.
        """
        pipeline, options = self._gate.pipeline, request.options
        endpoint, model = socket_endpoint(pipeline, request.model, options.aliases)
        if options.permit is not None and model:
            options.permit.check(endpoint.name, model)
        params = {**self._query, **({"model": model} if model and self._name == "realtime.connect" else {})}
        method = ApiMethod(name=self._name, verb="GET", path="/" + self._name.partition(".")[0])
        wire = handshake(endpoint, method, params, replace(self._options, permit=None))
        sizes = {"max_size": self._limits.message_bytes, "max_queue": _READ_AHEAD}
        self._provider = provider = await open_at(pipeline, wire, sizes | {"compression": None})
        self._endpoint = endpoint
        hears = "call_id" in self._query
        self._meter = SocketMeter(pipeline, self._method, endpoint, request.model, options, hears=hears)
        return provider

    async def run(self) -> None:
        """Pass messages on until one side closes."""
        self._start(self._from_client())
        if self._provider is not None:
            self._start(self._from_provider(self._provider))
        await self._ended.wait()

    async def close(self) -> None:
        """Close both sides, and the records of calls that are open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        code, reason = self._close
        try:
            if self._provider is not None:
                await self._provider.close(closing_code(self._client.closed, code))
        finally:
            if self._meter is not None:
                await self._meter.end(self._failure())
            await self._settle(None)
            await self._client.close(code, reason)

    def _start(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except OSError:  # the client disconnected, or the provider's connection broke off while sending
                _log.debug("%s: a WebSocket broke off", self._exchange.entry.id)
            except Exception as error:  # noqa: BLE001 - the connection is closed, whatever failed
                self._close = (_INTERNAL, "the server failed")
                _log.error("%s failed: %s", self._exchange.entry.id, exception_summary(error))
                _log.debug("%s: traceback", self._exchange.entry.id, exc_info=error)
            finally:
                self._ended.set()

        self._tasks.add(asyncio.create_task(guarded()))

    async def _from_client(self) -> None:
        while (message := await self._client.receive()) is not None:
            event: dict[str, Any] = {}
            try:
                data = message.encode() if isinstance(message, str) else message
                parse = partial(json_object, data, self._limits.json_values)
                event = await self._gate.off_loop.run(len(data), parse)
                await self._pass_on(message, event)
            except ConnectionClosed:
                return  # the other task closes the client's side with the provider's code
            except (ServingError, OpenAIError) as error:
                await self._client.send_error(serving_error_of(error), event.get("event_id"))

    async def _pass_on(self, message: str | bytes, event: dict[str, Any]) -> None:
        """Send an event of the client to the provider.

        Raises:
            ServingError, OpenAIError: the event is refused.
        """
        ready: Mapping[str, Any] = event
        sent = None
        if event.get("type") == CREATE:
            request = await self._authorized(event)
            if self._provider is None:
                self._start(self._from_provider(await self.connect(request)))
            assert self._meter is not None
            ticket = await self._gate.key_limiter.enter(self._exchange, request)
            try:
                ready, sent = await self._meter.begin(event)
            except BaseException:
                await self._gate.key_limiter.leave(self._exchange, ticket, None)
                raise
            self._tickets.append(ticket)
        elif self._meter is not None:
            self._check_models(event)
            await self._meter.begin(event)
        if self._provider is None or self._meter is None:
            raise bad_request("type", f"the first event must be {CREATE} whose model names the provider")
        try:
            if ready is not event:
                message = await self._gate.off_loop.run(len(message), partial(json.dumps, ready))
            await self._provider.send(message)
        except ConnectionClosed:
            if sent is not None:
                await self._meter.drop(sent)
            raise

    async def _authorized(self, event: Mapping[str, Any]) -> Request:
        """Return the request of an event, authorized by the gate."""
        options = replace(self._options, headers={})
        if self._name == "realtime.connect":
            return Request(self._method, "", stream=True, options=options)  # its model is the session's
        params = {name: value for name, value in event.items() if name not in ("type", "model")}
        model = event.get("model") or ""
        if not isinstance(model, str):
            raise bad_request("model", "model must be a string")
        request = Request(self._method, model, params, stream=True, options=options)
        return self._gate.authorized(self._exchange, request)

    def _check_models(self, event: Mapping[str, Any]) -> None:
        """Refuse a session whose settings name a model that the key may not use or pay for."""
        facts = SessionFacts("")
        facts.note_client(event)
        key = self._exchange.key
        if facts.transcriber and key is not None and key.budget_nano is not None:
            raise ServingError(
                403,
                "this key has a budget, and the cost of a session's transcriptions is known only afterwards; "
                "omit transcription, or use /v1/audio/transcriptions",
                "session.audio.input.transcription",
                "not_permitted",
            )
        permit, endpoint = self._options.permit, self._endpoint
        if permit is not None and endpoint is not None:
            for model in filter(None, (facts.transcriber, facts.model)):
                permit.check(endpoint.name, model)

    async def _from_provider(self, provider: ClientConnection) -> None:
        while True:
            try:
                message = await provider.recv()
            except ConnectionClosed as error:
                code = closing_code(None if error.rcvd is None else error.rcvd.code, _INTERNAL)
                lost = "the connection to the provider broke off"
                self._close = (code, lost if error.rcvd is None else error.rcvd.reason)
                return
            refusal = await self._note(message)
            await self._client.send(message)
            if refusal is not None:
                await self._client.send_error(serving_error_of(refusal))

    async def _note(self, message: str | bytes) -> OpenAIError | None:
        """Record a message of the provider; return the error of a response that is refused."""
        assert self._meter is not None
        assert self._provider is not None
        try:
            event = self._parse(message.encode() if isinstance(message, str) else message)
        except ValueError:
            return None  # an unknown event, which is passed on
        noting = self._meter.note(event)
        if noting is None:
            return None
        before = self._meter.last
        refusal = await noting
        if refusal is not None and self._name == "realtime.connect":
            await self._provider.send(
                json.dumps({"type": "response.cancel", "response_id": event.response.id})
            )
        if self._meter.last is not before:
            await self._settle(self._meter.last)
        return refusal

    async def _settle(self, call: Call | None) -> None:
        """Correct the reservation of a finished call; without a call, drop all reservations uncorrected."""
        while self._tickets:
            await self._gate.key_limiter.leave(self._exchange, self._tickets.popleft(), call)
            if call is not None:
                return

    def _failure(self) -> OpenAIError | None:
        """Return the error of a connection that the provider ended; None if the client did."""
        if self._provider is None or self._client.closed is not None:
            return None
        return closed_error(self._provider.protocol.close_exc)
