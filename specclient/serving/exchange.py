"""Turn one ASGI request into its body, and what is answered into ASGI messages, while the client is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from specclient.serving.connection import DISCONNECT_KEY, DisconnectSignal
from specclient.serving.errors import ServingError
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import LimitDecision
from specclient.serving.limits import Limits
from specclient.serving.request_log import RequestEntry

ASGIMessage = MutableMapping[str, Any]
ASGIScope = MutableMapping[str, Any]
ASGIReceive = Callable[[], Awaitable[ASGIMessage]]
ASGISend = Callable[[ASGIMessage], Awaitable[None]]
LimitHeaders = Callable[["HTTPExchange", StoredKey, dict[str, str]], Awaitable[dict[str, str]]]

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
REQUEST_ID = "x-request-id"

#: Of a body that is too long, the most that is read and dropped: a client that is still writing reads no
#: answer, and takes a connection that closes for a broken one.
_MOST_DROPPED = 512 * 2**20


class HTTPExchange:
    """One request and its answer.

    Args:
        limited: gives what an answer's headers say, from what they would, once its key's limits are told.

    Attributes:
        entry: of the request in the server's log.
        key: that it came with, of the stored ones; ``taken``: what its limits had left for it.
        headers: of the request, names in lower case; of several of one name, the last.
        begun, ended: whether the answer has.
        gone: whether the client has left.
    """

    def __init__(
        self,
        scope: ASGIScope,
        receive: ASGIReceive,
        send: ASGISend,
        entry: RequestEntry,
        *,
        limits: Limits,
        limited: LimitHeaders,
    ) -> None:
        self.scope, self.entry = scope, entry
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.key: StoredKey | None = None
        self.taken: LimitDecision | None = None
        self.begun = self.ended = self.gone = False
        self._receive, self._send, self._limits, self._limited = receive, send, limits, limited

    @property
    def path(self) -> str:
        """The path as the client wrote it, percent signs and all."""
        text: str = self.scope["raw_path"].decode("latin-1")
        return text

    @property
    def query(self) -> str:
        """What follows the question mark."""
        text: str = self.scope["query_string"].decode("latin-1")
        return text

    async def body(self) -> bytes:
        """Read the body.

        Raises:
            ProblemError: 413 for one that is too long, 408 for one that takes too long.
            ClientGoneError: the client left first.
        """
        most, size = self._limits.body_bytes, 0
        pieces: list[bytes] = []
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnectedError
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size <= most:
                        pieces.append(piece)
                    else:
                        pieces.clear()
                    if not message.get("more_body", False) or size > _MOST_DROPPED:
                        break
        except TimeoutError:
            seconds = time.monotonic() - begun
            raise ServingError(
                408,
                f"the request's body did not arrive within {seconds:.0f} s",
                headers={"connection": "close"},
            ) from None
        if size > most:
            raise ServingError(
                413,
                f"the request's body is longer than the {most} bytes that this server takes",
                headers={"connection": "close"},
            )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def say(
        self, content: bytes, *, status: int = 200, kind: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer whole."""
        await self.begin(status, kind, {"content-length": str(len(content)), **(headers or {})})
        self.ended = True
        await self._put({"type": "http.response.body", "body": content})

    async def begin(self, status: int, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """Begin an answer whose body comes in pieces."""
        self.begun = True
        lines = {"content-type": kind, **(headers or {}), REQUEST_ID: self.entry.id}
        if self.key is not None:
            lines = await self._limited(self, self.key, lines)
        self.entry.status = status
        await self._put(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in lines.items()],
            }
        )

    async def more(self, piece: bytes) -> None:
        """Send a piece of the body; an empty one would end nothing, and is not sent."""
        if piece:
            await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        """End the body, with a last piece of it."""
        self.ended = True
        await self._put({"type": "http.response.body", "body": last})

    def while_there(self) -> CancelOnDisconnect:
        """Return a context that is cancelled when the client leaves; for after the body has been read."""
        return CancelOnDisconnect(self, self.scope[DISCONNECT_KEY])

    async def _put(self, message: ASGIMessage) -> None:
        """Send a message; a client that does not read is one that leaves, by and by."""
        try:
            await self._send(message)
        except OSError:
            raise ClientDisconnectedError from None


class ClientDisconnectedError(Exception):
    """The client left, or does not read: nothing more can be said to it."""


class CancelOnDisconnect:
    """A context whose work is cancelled at once when the client leaves; it then raises ClientGoneError."""

    def __init__(self, talk: HTTPExchange, leaving: DisconnectSignal) -> None:
        self._talk, self._leaving = talk, leaving

    async def __aenter__(self) -> Self:
        if self._leaving.left:
            raise ClientDisconnectedError
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._leaving.tell = self._leave
        return self

    def _leave(self) -> None:
        if not self._talk.ended:
            self._talk.gone = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.tell = None
        if not self._talk.gone:
            return
        self._task.uncancel()
        if not isinstance(error, asyncio.CancelledError):
            with suppress(asyncio.CancelledError):  # the work was quicker: take what is on its way
                await asyncio.sleep(0)
        raise ClientDisconnectedError from None
