"""The WebSocket protocol of a connection: uvicorn's, with an end for clients that do not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from specclient.serving.limits import Limits

__all__ = ["SocketProtocol", "socket_options"]

#: Seconds between two pings, and for the answer to one, after which the client counts as gone.
_PING_S = 20.0

_BASE: Any = WebSocketsSansIOProtocol


class SocketProtocol(_BASE):  # type: ignore[misc]
    """One WebSocket of a client.

    Attributes:
        on_lost: called once the connection is closed.
    """

    on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        """Send an ASGI message. A refused handshake is complete for uvicorn, which logs it as failed else."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        """End a connection whose client does not answer, which would not read what is left to send."""
        super().keepalive_timeout()
        self.transport.abort()


def socket_options(limits: Limits) -> dict[str, Any]:
    """Return uvicorn's options of WebSockets. Compression would cost memory for each connection."""
    return {
        "ws": SocketProtocol,
        "ws_max_size": limits.message_bytes,
        "ws_ping_interval": _PING_S,
        "ws_ping_timeout": _PING_S,
        "ws_per_message_deflate": False,
    }
