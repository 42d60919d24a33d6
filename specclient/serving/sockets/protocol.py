"""The WebSocket protocol of a connection: uvicorn's, with an end for clients that do not read.

It also bounds what messages take that still arrive, or that a slow provider has not taken yet, of all
connections together. A message in frames without content is bounded by the bytes of its frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from specclient.openai_http.errors import ServingError
from specclient.serving.body_memory import BodyHold, BodyMemory
from specclient.serving.limits import Limits

__all__ = ["SocketProtocol", "handshake_error", "socket_options"]

#: Lines of a handshake, and bytes of each, that the library reads (websockets, ``http11.py``), and what a
#: line has besides name and value.
_LINES, _LINE_BYTES, _LINE_MARKS = 128, 8192, 16
#: The answer to a handshake that the library cannot read, such as one with a body.
_BAD_HANDSHAKE = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 43\r\nconnection: close\r\n\r\n"
    b"the handshake of a WebSocket must be a GET\n"
)

#: Seconds between two pings, and for the answer to one, after which the client counts as gone.
_PING_S = 20.0

#: Bytes of frames, in addition to twice those of a message, and the codes of a message without room.
_HEAD_BYTES, _TOO_BIG, _TRY_LATER = 64 * 2**10, 1009, 1013

#: Bytes that are read in one go: a frame can have six, and takes 15 µs.
_SLICE = 8192

_BASE: Any = WebSocketsSansIOProtocol


class SocketProtocol(_BASE):  # type: ignore[misc]
    """One WebSocket of a client.

    Args:
        memory: counts the bytes of messages.
        most: bytes of a message.
        options: uvicorn's.

    Attributes:
        on_lost: called once the connection is closed.
    """

    on_lost: Callable[[], None] | None = None

    def __init__(self, memory: BodyMemory, most: int, **options: Any) -> None:
        super().__init__(**options)
        self._memory, self._most = memory, most

    def connection_made(self, transport: Any) -> None:
        self._arriving, self._arrived = BodyHold(self._memory, None), 0
        self._complete: deque[BodyHold] = deque()  # received, and not taken by the application
        self._unread: deque[bytes] = deque()  # bytes that were received and not read
        self._reads = False  # whether they are read in the loop's next round
        self._taken: BodyHold | None = None  # the message that the application works on
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        if not self._reads:
            self._read()

    def _read(self) -> None:
        """Read the next bytes; the event loop serves others before those that follow."""
        paused, self._reads = self._reads, False
        if self.transport.is_closing():
            self._unread.clear()
        if not self._unread:
            return
        data = self._unread.popleft()
        if len(data) > _SLICE:
            self._unread.appendleft(data[_SLICE:])
        self._take(data[:_SLICE])
        if self._unread:
            self._reads = True
            self.transport.pause_reading()
            self.loop.call_soon(self._read)
        elif paused and not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        self._arrived += len(data)
        if self._arrived > 2 * self._most + _HEAD_BYTES:
            self._refuse(_TOO_BIG, "the message's frames are too long")
        elif not self._arriving.grow(len(data)):
            self._refuse(_TRY_LATER, "the server is busy: messages take all the memory for them")
        else:
            super().data_received(data)
            if not (
                self.handshake_initiated or self.transport.is_closing()
            ):  # the head is in the first piece
                self.transport.write(_BAD_HANDSHAKE)
                self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """Give a complete message to the application."""
        self._complete.append(self._arriving)
        self._arriving, self._arrived = BodyHold(self._memory, None), 0
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        """Return the next ASGI message; what the last one took is free."""
        if self._taken is not None:
            self._taken.release()
            self._taken = None
        message = await super().receive()
        if self._reads and not self.transport.is_closing():
            self.transport.pause_reading()  # which the call before has ended
        if message["type"] == "websocket.receive" and self._complete:
            self._taken = self._complete.popleft()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        if self.on_lost is not None:
            self.on_lost()
        for hold in (self._arriving, *self._complete):
            hold.release()
        super().connection_lost(exc)

    def _refuse(self, code: int, reason: str) -> None:
        if self.transport.is_closing():
            return
        if self.handshake_complete:
            self.conn.send_close(code, reason)
            self.handle_parser_exception()
        else:
            self.transport.close()

    async def send(self, message: Any) -> None:
        """Send an ASGI message. A refused handshake is complete for uvicorn, which logs it as failed else."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        """End a connection whose client does not answer, which would not read what is left to send."""
        super().keepalive_timeout()
        self.transport.abort()


def handshake_error(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> ServingError | None:
    """Return why the head of a handshake cannot be read, None if it can.

    The library waits for ever after a head that it cannot read.
    """
    longest = max(len(url), *(len(name) + len(text) for name, text in headers))
    if len(headers) <= _LINES and longest + _LINE_MARKS <= _LINE_BYTES:
        return None
    return ServingError(
        431,
        f"the head of a WebSocket's handshake has {len(headers)} headers and a line of {longest} bytes; it "
        f"may have {_LINES} headers of {_LINE_BYTES - _LINE_MARKS} bytes: shorten query and headers",
        code="invalid_http",
    )


def socket_options(limits: Limits) -> dict[str, Any]:
    """Return uvicorn's options of WebSockets. Compression would cost memory for each connection."""
    return {  # which workers get pickled
        "ws": partial(SocketProtocol, BodyMemory(limits.bodies_bytes), limits.message_bytes),
        "ws_max_size": limits.message_bytes,
        "ws_ping_interval": _PING_S,
        "ws_ping_timeout": _PING_S,
        "ws_per_message_deflate": False,
    }
