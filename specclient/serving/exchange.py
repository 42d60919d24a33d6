"""One HTTP request and its response, over ASGI messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from specclient.openai_http.errors import ServingError
from specclient.openai_http.response import JSON
from specclient.runtime.time_limit import TimeLimit
from specclient.serving.api_forms import api_form
from specclient.serving.body_memory import BodyHold, BodyMemory, no_room
from specclient.serving.connection import DISCONNECT_KEY, DisconnectSignal
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import LimitDecision
from specclient.serving.limits import Limits
from specclient.serving.request_log import RequestEntry
from specclient.serving.whole_messages import WHOLE_KEY

ASGIMessage = MutableMapping[str, Any]
ASGIScope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[ASGIMessage]]
ASGISend = Callable[[ASGIMessage], Awaitable[None]]
LimitHeaders = Callable[["HTTPExchange", StoredKey, dict[str, str]], Awaitable[dict[str, str]]]

#: Key of the :class:`HTTPExchange` in the ASGI scope of a request.
EXCHANGE_KEY = "specclient.exchange"
#: Maximum bytes of a too long body that are read and discarded. A client that is still writing does not read
#: the response, and reports a closed connection as broken.
_MAX_DISCARDED = 512 * 2**20


class HTTPExchange:
    """One HTTP request and its response.

    Args:
        scope: the ASGI scope.
        receive: the ASGI receive function.
        send: the ASGI send function.
        entry: the request's entry in the server's log.
        limits: limits of the server.
        limit_headers: adds the rate limits of the request's key to the response headers.
        bodies: counts the bytes of bodies.

    Attributes:
        entry: the request's entry in the server's log.
        key: the stored key of the request; None for the operator's key.
        limit_decision: the decision about the key's rate limits; None if it has none.
        headers: request headers with lower-case names; the last value of a repeated header.
        form: the form of the API that the client speaks.
        started: whether the response has started.
        finished: whether the response is complete.
        disconnected: whether the client has disconnected.
    """

    def __init__(
        self,
        scope: ASGIScope,
        receive: ASGIReceive,
        send: ASGISend,
        entry: RequestEntry,
        *,
        limits: Limits,
        limit_headers: LimitHeaders,
        bodies: BodyMemory,
    ) -> None:
        self.scope, self.entry = scope, entry
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.form = api_form(scope["path"], self.headers)
        self.key: StoredKey | None = None
        self.limit_decision: LimitDecision | None = None
        self.started = self.finished = self.disconnected = False
        self._receive, self._send, self._limits, self._limit_headers = receive, send, limits, limit_headers
        self._bodies = bodies
        self._hold: BodyHold | None = None

    @property
    def path(self) -> str:
        """The path as the client sent it, with percent-encoding."""
        text: str = self.scope["raw_path"].decode("latin-1")
        return text

    @property
    def query(self) -> str:
        """The query string without the question mark."""
        text: str = self.scope["query_string"].decode("latin-1")
        return text

    async def body(self) -> bytes:
        """Read the request body. Its bytes are counted until :meth:`release_body`.

        Raises:
            ServingError: 413 if the body is too long, 408 if it arrives too slowly, 429 if the server holds
                too many bytes of bodies.
            ClientDisconnectedError: the client disconnected.
        """
        self._hold = hold = BodyHold(self._bodies, None if self.key is None else self.key.name)
        whole = self.scope.get(WHOLE_KEY)
        content: bytes | None = None if whole is None else whole.body()
        if content is None:
            return await self._arriving_body(hold)
        self._check_size(len(content))
        if not hold.grow(len(content)):
            raise no_room()
        return content

    async def _arriving_body(self, hold: BodyHold) -> bytes:
        """Read a body that has not arrived as a whole; see :meth:`body`."""
        limit, size = self._limits.body_bytes, 0
        pieces: list[bytes] = []
        has_room = True
        begun = time.monotonic()
        try:
            with TimeLimit(self._limits.body_s):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnectedError
                    piece = message.get("body", b"")
                    size += len(piece)
                    has_room = has_room and size <= limit and hold.grow(len(piece))
                    if has_room:
                        pieces.append(piece)
                    else:
                        pieces.clear()
                        hold.release()
                    if not message.get("more_body", False) or size > _MAX_DISCARDED:
                        break
        except TimeoutError:
            seconds = time.monotonic() - begun
            raise ServingError(
                408,
                f"the request's body did not arrive within {seconds:.0f} s",
                headers={"connection": "close"},
            ) from None
        self._check_size(size)
        if not has_room:
            raise no_room()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_size(self, size: int) -> None:
        limit = self._limits.body_bytes
        if size > limit:
            raise ServingError(
                413,
                f"the request's body is longer than this server's limit of {limit} bytes",
                headers={"connection": "close"},
            )

    def release_body(self) -> None:
        """Note that the request has ended, and with it the objects made from its body."""
        if self._hold is not None:
            self._hold.release()

    async def respond(
        self, content: bytes, *, status: int = 200, kind: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a complete response.

        Args:
            content: the body.
            status: the HTTP status.
            kind: the media type of the body.
            headers: further headers.
        """
        lines = await self._head(status, kind, {"content-length": str(len(content)), **(headers or {})})
        self.finished = True
        whole = self.scope.get(WHOLE_KEY)  # a handshake of a WebSocket has none
        if whole is None or not whole.respond(status, lines, content):
            await self._send_start(status, lines)
            await self._send_message({"type": "http.response.body", "body": content})

    async def start(self, status: int, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """Start a response whose body follows in pieces."""
        await self._send_start(status, await self._head(status, kind, headers))

    async def _head(self, status: int, kind: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        """Note that a response starts; return its headers."""
        self.started = True
        lines = {"content-type": kind, **(headers or {})}
        lines |= dict.fromkeys(self.form.id_headers, self.entry.id)
        if self.key is not None:
            lines = await self._limit_headers(self, self.key, lines)
        self.entry.status = status
        return lines

    async def _send_start(self, status: int, lines: Mapping[str, str]) -> None:
        await self._send_message(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in lines.items()],
            }
        )

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body. An empty piece is not sent."""
        if piece:
            await self._send_message({"type": "http.response.body", "body": piece, "more_body": True})

    async def finish(self, last: bytes = b"") -> None:
        """Finish the response with the last piece of its body."""
        self.finished = True
        await self._send_message({"type": "http.response.body", "body": last})

    def cancel_on_disconnect(self) -> CancelOnDisconnect:
        """Return a context that is cancelled when the client disconnects. Read the body before."""
        return CancelOnDisconnect(self, self.scope[DISCONNECT_KEY])

    async def _send_message(self, message: ASGIMessage) -> None:
        """Send an ASGI message.

        Raises:
            ClientDisconnectedError: the client disconnected, or does not read the response.
        """
        try:
            await self._send(message)
        except OSError:
            raise ClientDisconnectedError from None


class ClientDisconnectedError(Exception):
    """The client disconnected, or does not read the response."""


class CancelOnDisconnect:
    """A context that is cancelled when the client disconnects, and then raises ClientDisconnectedError.

    It is entered by :meth:`begin` and left by :meth:`end`.
    """

    def __init__(self, exchange: HTTPExchange, signal: DisconnectSignal) -> None:
        self._exchange, self._signal = exchange, signal

    def begin(self) -> None:
        """Enter the context."""
        if self._signal.disconnected:
            raise ClientDisconnectedError
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._signal.callback = self._on_disconnect

    def _on_disconnect(self) -> None:
        if not self._exchange.finished:
            self._exchange.disconnected = True
            self._task.cancel()

    async def end(self, error: BaseException | None) -> None:
        """Leave the context.

        Args:
            error: what has ended its block.
        """
        self._signal.callback = None
        if not self._exchange.disconnected:
            return
        self._task.uncancel()
        if not isinstance(error, asyncio.CancelledError):
            with suppress(asyncio.CancelledError):  # the work ended first; consume the pending cancellation
                await asyncio.sleep(0)
        raise ClientDisconnectedError from None
