"""The HTTP protocol of a connection: uvicorn's, with limits for slow or misbehaving clients.

uvicorn waits forever for the head of a request, accepts a head of any size, and waits forever for a client
that does not read the response; this protocol bounds all three. uvicorn also treats the body of a request
with an ``Upgrade`` header as data of the other protocol. Java's client sends ``Upgrade: h2c`` with every
request; a server may ignore it (RFC 9110, section 7.8). An upgrade to WebSocket is left to uvicorn.

A client may close its direction of the connection after its request, and still read the response. uvicorn
closes the connection then. This protocol keeps it for the answer, and finds out whether the client has left
instead; see :mod:`specclient.serving.half_closed`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specclient.openai_http.errors import ServingError, bad_request
from specclient.serving.half_closed import DepartureWatch
from specclient.serving.limits import Limits
from specclient.serving.open_connections import OpenConnections, max_descriptors
from specclient.serving.response_writer import ResponseWriter, encoded_error, head_too_long
from specclient.serving.sockets.protocol import handshake_error
from specclient.serving.whole_messages import WHOLE_KEY, WholeMessages

fcntl: ModuleType | None
try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None

__all__ = ["DISCONNECT_KEY", "DisconnectSignal", "limited_protocol"]

#: Key of the :class:`DisconnectSignal` in the ASGI scope of a request.
DISCONNECT_KEY = "specclient.disconnect"

_HEAD_END = b"\r\n\r\n"
_LINE_BYTES = len(b": \r\n")  # of a header, in addition to its name and value
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*\r\n)[^\r\n]*(?=\r\n)", re.IGNORECASE)
#: Seconds and bytes for which a refused client is read on. A connection that is closed with unread data is
#: reset, and the client may lose the error (RFC 9112, section 9.6).
_LINGER_S, _LINGER_BYTES = 2.0, 2**20


class DisconnectSignal:
    """Signals that the client of one request has disconnected.

    Attributes:
        callback: called on disconnection; None if nothing waits for it.
        disconnected: whether the client has disconnected.
    """

    __slots__ = ("callback", "disconnected")

    def __init__(self) -> None:
        self.disconnected = False
        self.callback: Callable[[], None] | None = None

    def disconnect(self) -> None:
        """Set the signal."""
        self.disconnected = True
        if self.callback is not None:
            self.callback()


_BASE: Any = HttpToolsProtocol


class _LimitedHTTPProtocol(_BASE):  # type: ignore[misc]
    """One connection. Invalid HTTP gets an error response in JSON."""

    _limits: Limits
    _all: OpenConnections

    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _departure: DepartureWatch | None = None
    #: The error of a head that is complete but too long; the parser's exception carries no error.
    _head_error: ServingError | None = None
    _in_head = True
    #: Whether the request may be a WebSocket handshake, and whether the WebSocket protocol has taken over.
    _may_upgrade = _handed_over = False
    #: Bytes since the last progress (a complete head, or a part of a body): heads, and chunk framing of
    #: bodies.
    _bytes_since_progress, _progress = 0, False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._open: dict[Any, DisconnectSignal] = {}  # by request, for requests without a complete response
        super().connection_made(transport)
        self._start_head_timer()
        self._all.set_idle(self)

    def data_received(self, data: bytes) -> None:
        if self._linger_timer is not None:
            self._bytes_since_progress += len(data)
            if self._bytes_since_progress > _LINGER_BYTES:
                self.end()
            return
        if self._in_head:
            if not self._bytes_since_progress:
                self._may_upgrade = data.startswith(b"GET ")
            data = _without_upgrade(data, _OTHER_UPGRADE if self._may_upgrade else _UPGRADE)
        super().data_received(data)
        if self._linger_timer is not None or self.transport.is_closing() or self._handed_over:
            return
        if self._progress:
            self._progress, self._bytes_since_progress = False, 0
        else:
            self._bytes_since_progress += len(data)
            if self._bytes_since_progress > self._limits.head_bytes:
                self._refuse(head_too_long(self._limits.head_bytes))
                return
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum([len(name) + len(value) + _LINE_BYTES for name, value in self.headers])
        if size > self._limits.head_bytes:
            self._head_error = head_too_long(self._limits.head_bytes)
            raise ValueError  # stops the parser; uvicorn then calls send_400_response()
        self._in_head, self._progress = False, True
        self._all.set_busy(self)
        super().on_headers_complete()
        if self.parser.should_upgrade() and self._should_upgrade():
            return  # uvicorn hands the connection over
        self.cycle.transport = ResponseWriter(self)
        self.scope[DISCONNECT_KEY] = self._open[self.cycle] = DisconnectSignal()
        self.scope[WHOLE_KEY] = WholeMessages(self.cycle, self.transport)

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = self._progress = True
        super().on_message_complete()
        if not self.pipeline:  # uvicorn reads on with the next part of a body, and would miss a departure
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        for cycle in [cycle for cycle in self._open if cycle.response_complete]:
            del self._open[cycle]
        super().on_response_complete()
        if not self._open and not self.transport.is_closing():
            self._all.set_idle(self)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the protocol of WebSockets; it stays counted as busy."""
        if (error := handshake_error(self.url, self.headers)) is not None:
            self._refuse(error)
            return
        self._handed_over = True
        self._cancel_head_timer()
        super().handle_websocket_upgrade()
        self.transport.get_protocol().on_lost = lambda: self._all.remove(self)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._head_error or bad_request(None, msg, "invalid_http"))

    def eof_received(self) -> bool:
        """Return whether to keep the connection, for the answers to complete requests."""
        if self._departure is not None:
            return True
        last = self.cycle
        if self._linger_timer is not None or last is None or last.response_complete or last.more_body:
            return False
        started = any(cycle.response_started for cycle in self._open)
        if not (DepartureWatch.supported(started=started) and self.transport.can_write_eof()):
            return False
        last.keep_alive = False
        self._departure = DepartureWatch(
            self.transport,
            started=started,
            probe=self.scope["http_version"] == "1.1",
            complete=lambda: last.response_complete,
        )
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        self._cancel_head_timer()
        for watch in (self._departure, self._linger_timer):
            if watch is not None:
                watch.cancel()
        self.resume_writing()
        self._disconnect_requests()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        self.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().resume_writing()

    def end(self) -> None:
        """Close the connection after the client has read the response, or after the time limit."""
        if not self.transport.is_closing():
            self.transport.close()
            self._watch_unread()

    def make_room(self) -> None:
        """Close the connection, which is idle, because the process has few file descriptors left.

        A connection that is already being closed is closed at once.
        """
        if self.transport.is_closing() or self._linger_timer is not None:
            self.transport.abort()
        else:
            self.end()

    def _disconnect_requests(self) -> None:
        for cycle, signal in self._open.items():  # uvicorn signals only the newest request
            cycle.disconnected = True
            cycle.message_event.set()
            signal.disconnect()
        self._open = {}

    def _refuse(self, error: ServingError) -> None:
        """Send an error, unless a response has started, and close the connection."""
        if any(cycle.response_started for cycle in self._open) or not self.transport.can_write_eof():
            self.end()
            return
        self._cancel_head_timer()
        self._disconnect_requests()
        self.transport.write(encoded_error(error))
        self.transport.write_eof()
        self._bytes_since_progress = 0
        self.flow.resume_reading()
        self._linger_timer = self.loop.call_later(_LINGER_S, self.end)

    def _watch_unread(self) -> None:
        size = _unread(self.transport)
        if size and self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self._limits.send_s, self._check_unread, size)

    def _check_unread(self, before: int) -> None:
        self._unread_timer = None
        if _unread(self.transport) < before:
            self._watch_unread()
        else:
            self.transport.abort()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_s, self.end)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return the protocol class for :class:`specclient.serving.Limits`."""
    attributes = {"_limits": limits, "_all": OpenConnections(max_descriptors())}
    return type("LimitedHTTPProtocol", (_LimitedHTTPProtocol,), attributes)


def _without_upgrade(data: bytes, upgrade: re.Pattern[bytes]) -> bytes:
    """Return the head of a request without an ``Upgrade`` header that the pattern matches."""
    end = data.find(_HEAD_END)
    head = data if end < 0 else data[: end + 2]
    if b"\r\nupgrade:" not in head.lower():
        return data
    found = upgrade.search(head)
    return data if found is None else data[: found.start()] + data[found.end() :]


def _unread(transport: asyncio.Transport) -> int:
    """Return the number of unread bytes: those buffered here and, if there are any, those in the kernel.

    The kernel buffers megabytes and accepts more only after a large part is sent, which can take a slow
    client minutes.
    """
    size = transport.get_write_buffer_size()
    if size and fcntl is not None:
        with suppress(OSError):
            held = fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
            size += int.from_bytes(held, sys.byteorder)
    return size
