"""The WebSocket protocol of a connection: uvicorn's, which also disconnects clients that do not read.

It bounds the memory of all messages of a process that are being received or wait to be sent to a provider.
The bytes of frames count, too, so that a message of empty frames is bounded.
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

#: Limits of websockets (``http11.py``) for the header lines of a handshake and the bytes of a line, and an
#: allowance for a line's bytes besides name and value.
_LINES, _LINE_BYTES, _LINE_MARKS = 128, 8192, 16
#: The answer to a handshake that the library cannot read, such as one with a body.
_BAD_HANDSHAKE = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 43\r\nconnection: close\r\n\r\n"
    b"the handshake of a WebSocket must be a GET\n"
)

#: Seconds between two pings, and seconds without an answer after which the client counts as disconnected.
_PING_S = 20.0

#: Bytes of frames beyond twice the size of a message, and the close codes for a message that is too long
#: or finds no memory.
_HEAD_BYTES, _TOO_BIG, _TRY_LATER = 64 * 2**10, 1009, 1013

#: Bytes that are parsed at a time, and seconds after which the event loop serves other connections. A frame
#: may have as few as six bytes, and parsing it takes 15 µs.
_SLICE, _PAUSE_AFTER_S = 1024, 0.002

_BASE: Any = WebSocketsSansIOProtocol


class SocketProtocol(_BASE):  # type: ignore[misc]
    """One WebSocket of a client.

    Args:
        memory: counts the bytes of messages.
        most: maximum bytes of a message.
        options: options of uvicorn's protocol.

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
        self._unread: deque[memoryview] = deque()  # received bytes that are not parsed yet
        self._reads = False  # whether the event loop calls _read again
        self._taken: BodyHold | None = None  # the message that the application works on
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._unread.append(memoryview(data))
        if not self._reads:
            self._read()

    def _read(self) -> None:
        """Parse bytes for a short time; before the rest, the event loop serves other connections."""
        paused, self._reads = self._reads, False
        end = self.loop.time() + _PAUSE_AFTER_S
        while self._unread and not self.transport.is_closing() and self.loop.time() <= end:
            data = self._unread.popleft()
            size = _SLICE if self.handshake_initiated else len(data)  # the whole head is in the first piece
            if len(data) > size:
                self._unread.appendleft(data[size:])
            self._take(bytes(data[:size]))
        if self.transport.is_closing():
            self._unread.clear()
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
            self._refuse(_TRY_LATER, "the server is busy: messages in progress take all the memory for them")
        else:
            super().data_received(data)
            # The whole head was in this piece, so a handshake that did not start now is invalid.
            if not (self.handshake_initiated or self.transport.is_closing()):
                self.transport.write(_BAD_HANDSHAKE)
                self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """Give a complete message to the application."""
        self._complete.append(self._arriving)
        self._arriving, self._arrived = BodyHold(self._memory, None), 0
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        """Return the next ASGI message, and release the memory of the last one."""
        if self._taken is not None:
            self._taken.release()
            self._taken = None
        message = await super().receive()
        if self._reads and not self.transport.is_closing():
            self.transport.pause_reading()  # super().receive() has resumed it
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
        """Send an ASGI message; mark a refused handshake as complete, which uvicorn would log as failed."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        """Abort a connection whose client does not answer pings: it would not read unsent data either."""
        super().keepalive_timeout()
        self.transport.abort()


def handshake_error(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> ServingError | None:
    """Return the error of a handshake whose head is longer than websockets can read; None if it is not.

    The library would wait for ever after such a head.
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
    return {  # pickled for the workers
        "ws": partial(SocketProtocol, BodyMemory(limits.bodies_bytes), limits.message_bytes),
        "ws_max_size": limits.message_bytes,
        "ws_ping_interval": _PING_S,
        "ws_ping_timeout": _PING_S,
        "ws_per_message_deflate": False,
    }
