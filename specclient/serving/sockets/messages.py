"""ASGI messages of a WebSocket: its handshake, its messages, its end, and errors as events."""

from __future__ import annotations

import json
import os
from typing import Any

from specclient.openai_http.errors import ServingError
from specclient.serving.exchange import ASGIMessage, ASGIReceive, ASGISend

__all__ = ["ClientSocket", "as_refusal", "closing_code"]

#: Codes below 3000 that a close frame may have: those of RFC 6455, section 7.4.1, and of its registry, except
#: 1005, 1006 and 1015, which are never sent. Libraries and applications define the codes from 3000.
_SENDABLE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
#: Bytes of the reason in a close frame (RFC 6455, section 5.5).
_REASON_BYTES = 123


def closing_code(code: int | None, otherwise: int) -> int:
    """Return a code that a close frame may have, to pass on the code of another connection."""
    return code if code is not None and (code in _SENDABLE or 3000 <= code < 5000) else otherwise


def as_refusal(send: ASGISend) -> ASGISend:
    """Return a function that sends the messages of an HTTP response as the refusal of a handshake."""

    async def refuse(message: ASGIMessage) -> None:
        kind = message["type"]
        await send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

    return refuse


class ClientSocket:
    """The client's side of a WebSocket.

    Args:
        receive, send: the ASGI server's functions.
        realtime: whether errors have the form of the Realtime API, not that of the Responses API.
    """

    def __init__(self, receive: ASGIReceive, send: ASGISend, *, realtime: bool) -> None:
        self._receive, self._send, self._realtime = receive, send, realtime
        self.closed: int | None = None

    async def accept(self, subprotocol: str | None) -> None:
        """Answer the handshake."""
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})

    async def receive(self) -> str | bytes | None:
        """Return the next message; None at the end, when ``closed`` has the client's code."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.closed = message.get("code", 1006)
            return None
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        return data if text is None else text

    async def send(self, message: str | bytes) -> None:
        """Send a message; return when there is room for the next one."""
        kind = "text" if isinstance(message, str) else "bytes"
        await self._send({"type": "websocket.send", kind: message})

    async def send_error(self, error: ServingError, event_id: object = None) -> None:
        """Send an error as an event.

        Args:
            error: the error.
            event_id: the id of the client's event that caused it, if the event has one.
        """
        event: dict[str, Any] = {"type": "error"}
        if self._realtime:
            about = event_id if isinstance(event_id, str) else None
            event |= {
                "event_id": f"event_{os.urandom(12).hex()}",
                "error": {**error.error, "event_id": about},
            }
        else:
            event |= {"status": error.status, "error": error.error}
        await self.send(json.dumps(event))

    async def close(self, code: int, reason: str = "") -> None:
        """Close the connection, unless the client has closed it."""
        if self.closed is None:
            self.closed = code
            cut = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
            await self._send({"type": "websocket.close", "code": code, "reason": cut})
