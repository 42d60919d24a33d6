"""The handshake of a WebSocket: key, models, limits; then the relay to the provider takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

from specclient.call.websocket.methods import METERED_SOCKETS
from specclient.openai_http.errors import ServingError, bad_request
from specclient.openai_http.request import FORWARDED_HEADERS, forwarded_headers
from specclient.serving.admission import RETRY_AFTER_S
from specclient.serving.calls.gate import CallGate
from specclient.serving.exchange import EXCHANGE_KEY, ASGIReceive, ASGIScope, ASGISend, HTTPExchange
from specclient.serving.limits import Limits
from specclient.serving.sockets.messages import ClientSocket
from specclient.serving.sockets.relay import SocketRelay
from specclient.types.request import PerCallOptions, Request

__all__ = ["KEY_SUBPROTOCOL", "SOCKET_PATHS", "OpenSockets", "SocketHandler"]

#: The ``connect`` method of each path.
SOCKET_PATHS = {"/v1/realtime": "realtime.connect", "/v1/responses": "responses.connect"}
#: The subprotocol of the Realtime API, and the prefix of the one with which a browser, which cannot set
#: headers, sends its key (https://platform.openai.com/docs/guides/realtime-websocket).
_SUBPROTOCOL, KEY_SUBPROTOCOL = "realtime", "openai-insecure-api-key."
_SWITCHING = 101


class OpenSockets:
    """Counts the open WebSockets of a server process.

    Args:
        most: the number that may be open.
    """

    def __init__(self, most: int) -> None:
        self._most, self.count = most, 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Return a context that counts one.

        Raises (on entry):
            ServingError: 429, too many are open.
        """
        if self.count >= self._most:
            raise ServingError(
                429,
                f"the server is busy: {self.count} WebSockets are open, which is its limit; try again later",
                code="server_busy",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class SocketHandler:
    """Serves the WebSockets of one path.

    Args:
        gate: checks keys and models.
        path: one of :data:`SOCKET_PATHS`.
        limits: limits of the server.
        slots: the open WebSockets of all paths.
    """

    def __init__(self, gate: CallGate, path: str, limits: Limits, slots: OpenSockets) -> None:
        self._gate, self._path, self._limits, self._slots = gate, path, limits, slots
        self._name = SOCKET_PATHS[path]
        self._method = METERED_SOCKETS[self._name]
        self._realtime = self._method.operation == "realtime"

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        """Serve one WebSocket until it ends.

        Raises:
            ServingError: the server refuses the handshake.
            OpenAIError: the provider refuses a Realtime session.
        """
        exchange: HTTPExchange = scope[EXCHANGE_KEY]
        exchange.entry.route, exchange.entry.streamed = self._path, True
        with self._slots.slot():
            client = ClientSocket(receive, send, realtime=self._realtime)
            query = dict(parse_qsl(exchange.query, keep_blank_values=True))
            options = PerCallOptions(
                headers=forwarded_headers(exchange.headers, FORWARDED_HEADERS),
                permit=self._gate.permit(exchange),
            )
            relay = SocketRelay(
                self._gate,
                exchange,
                client,
                name=self._name,
                query=query,
                options=options,
                limits=self._limits,
            )
            if self._realtime:
                model = self._checked_model(exchange, query)
                request = Request(self._method, model, stream=True, options=options)
                await relay.connect(self._gate.authorized(exchange, request))
            exchange.entry.status, exchange.started = _SWITCHING, True
            offered = scope.get("subprotocols", ())
            try:
                await client.accept(_SUBPROTOCOL if _SUBPROTOCOL in offered else None)
                await relay.run()
            finally:
                await relay.close()

    def _checked_model(self, exchange: HTTPExchange, query: dict[str, str]) -> str:
        """Remove the model from the query of a Realtime session, and return it."""
        if sum(name == "model" for name, _ in parse_qsl(exchange.query, keep_blank_values=True)) > 1:
            raise bad_request("model", "the query has several models; it must have one")
        key = exchange.key
        if key is not None and key.confined and (others := sorted(query.keys() - {"model", "intent"})):
            raise ServingError(
                403,
                f"this key may not use {others[0][:80]!r} in the query, because its models or its spending "
                "are limited",
                others[0][:80],
                "not_permitted",
            )
        return query.pop("model", "")
