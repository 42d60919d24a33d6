"""Turn a client's connection into requests and answers, and end it where the client does its part badly.

It is uvicorn's protocol. That waits without end for the head of a request, takes any amount of it, and leaves
an answer that is not read where it is; here each has a limit. And where a request would rather go on in
another protocol, that takes its body for the other one's: Java's client asks so with every request
(``Upgrade: h2c``), and may be passed over (RFC 9110, section 7.8).
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

from specclient.serving.errors import ServingError, bad_request
from specclient.serving.limits import Limits

fcntl: ModuleType | None
try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None

__all__ = ["DISCONNECT_KEY", "DisconnectSignal", "limited_protocol"]

#: Where a request's scope has its :class:`DisconnectSignal`.
DISCONNECT_KEY = "specclient.leaving"

_JSON = b"application/json"
_HEAD_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class DisconnectSignal:
    """Tells that the client of one request has left.

    Attributes:
        tell: called when it leaves; None while nobody wants to know.
        left: whether it has.
    """

    __slots__ = ("left", "tell")

    def __init__(self) -> None:
        self.left = False
        self.tell: Callable[[], None] | None = None

    def leave(self) -> None:
        """Note that the client is gone."""
        self.left = True
        if self.tell is not None:
            self.tell()


class _ResponseWriter:
    """What one answer is written to; its head goes out with the first of its body where that follows at once.

    Args:
        connection: the protocol; its transport's other half.
    """

    __slots__ = ("_begun", "_connection", "_head", "_transport")

    def __init__(self, connection: Any) -> None:
        self._connection, self._transport = connection, connection.transport
        self._head, self._begun = b"", False

    def write(self, data: bytes) -> None:
        if self._begun:
            head, self._head = self._head, b""
            if head:
                self._transport.writelines((head, data))
            else:
                self._transport.write(data)
        else:
            self._begun, self._head = True, data
            self._connection.loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._connection.end()

    def is_closing(self) -> bool:
        closing: bool = self._transport.is_closing()
        return closing

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)


_BASE: Any = HttpToolsProtocol


class _LimitedHTTPProtocol(_BASE):  # type: ignore[misc]
    """One connection; says in JSON what is no HTTP."""

    _limits: Limits

    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _in_head = True
    #: Bytes since a head was complete or a piece of a body came: heads, and what may stand around bodies.
    _quiet, _moved = 0, False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._open: dict[Any, DisconnectSignal] = {}  # by request, of those that are not answered yet
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            data = _in_this_protocol(data)
        super().data_received(data)
        if self._moved:
            self._moved, self._quiet = False, 0
        else:
            self._quiet += len(data)
            if self._quiet > self._limits.head_bytes:
                self._refuse(_too_long(self._limits.head_bytes))
                return
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head, self._moved = False, True
        super().on_headers_complete()
        self.cycle.transport = _ResponseWriter(self)
        self.scope[DISCONNECT_KEY] = self._open[self.cycle] = DisconnectSignal()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = self._moved = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        for cycle in [cycle for cycle in self._open if cycle.response_complete]:
            del self._open[cycle]
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(bad_request(None, msg, "invalid_http"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self.resume_writing()
        for cycle, leaving in self._open.items():  # uvicorn tells the newest alone
            cycle.disconnected = True
            cycle.message_event.set()
            leaving.leave()
        self._open = {}
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
        """Close the connection, once the client has read its answer or been given the time to."""
        if not self.transport.is_closing():
            self.transport.close()
            self._watch_unread()

    def _refuse(self, problem: ServingError) -> None:
        """Answer what is no request, unless amid an answer, and close the connection."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer_of(problem))
        self.end()

    def _watch_unread(self) -> None:
        size = _unread(self.transport)
        if size and self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self._limits.send_s, self._see_unread, size)

    def _see_unread(self, before: int) -> None:
        self._unread_timer = None
        if _unread(self.transport) < before:
            self._watch_unread()
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_s, self.end)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits: see :class:`specclient.serving.Limits`, and this module."""
    return type("Patient", (_LimitedHTTPProtocol,), {"_limits": limits})


def _in_this_protocol(data: bytes) -> bytes:
    """Return the beginning of a request without its wish to go on in another protocol."""
    end = data.find(_HEAD_END)
    found = _UPGRADE.search(data, 0, len(data) if end < 0 else end)
    return data if found is None else data[: found.start()] + data[found.end() :]


def _unread(transport: asyncio.Transport) -> int:
    """Return the bytes that a client has not taken: those that wait here and, then, those the system holds.

    It holds megabytes, and asks for more when a good part of them is gone: a slow client may take minutes.
    """
    size = transport.get_write_buffer_size()
    if size and fcntl is not None:
        with suppress(OSError):
            held = fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
            size += int.from_bytes(held, sys.byteorder)
    return size


def _too_long(most: int) -> ServingError:
    return ServingError(431, f"the request's head is longer than {most} bytes", code="invalid_http")


def _answer_of(problem: ServingError) -> bytes:
    body = problem.body()
    lines = (
        b"HTTP/1.1 %d %b" % (problem.status, _REASONS[problem.status]),
        b"content-type: " + _JSON,
        b"content-length: %d" % len(body),
        b"connection: close",
    )
    return b"\r\n".join([*lines, b"", b""]) + body
