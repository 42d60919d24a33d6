"""Whole messages: the body of a request, and a response, without the messages of ASGI.

A response of two ASGI messages takes uvicorn eighty calls of functions, most of them for its headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

__all__ = ["WHOLE_KEY", "WholeMessages"]

#: Key of the :class:`WholeMessages` in the ASGI scope of a request.
WHOLE_KEY = "specclient.whole"

_HEAD_END = b"\r\n\r\n"
#: Statuses of responses without a body.
_BODILESS = (204, 304)


class WholeMessages:
    """Takes the body of a request, and writes a response, as a whole, in place of uvicorn's messages.

    Args:
        cycle: uvicorn's state of the request and its response.
        transport: of the connection.
    """

    __slots__ = ("_cycle", "_transport")

    def __init__(self, cycle: Any, transport: asyncio.Transport) -> None:
        self._cycle, self._transport = cycle, transport

    def body(self) -> bytes | None:
        """Return the body of the request; None if it has not arrived as a whole, or the client has left."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        content, cycle.body = bytes(cycle.body), bytearray()
        cycle.flow.resume_reading()
        return content

    def respond(self, status: int, headers: Mapping[str, str], content: bytes) -> bool:
        """Write a response; return False, without effect, if it is to be sent by messages.

        Args:
            status: the HTTP status.
            headers: by lower-case name, with the length of the body.
            content: the body.
        """
        cycle = self._cycle
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or cycle.flow.write_paused:
            return False
        if "connection" in headers or status in _BODILESS or cycle.scope["method"] == "HEAD":
            return False
        lines = [f"{name}: {text}" for name, text in headers.items()]
        if not "".join(lines).isprintable():
            return False
        own = [b"%b: %b\r\n" % line for line in cycle.default_headers]
        head = b"".join([STATUS_LINE[status], *own, "\r\n".join(lines).encode("latin-1"), _HEAD_END])
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self._transport.write(head + content)
        cycle.message_event.set()
        cycle.on_response()
        return True
