"""aiohttp's connections, without three of its faults, and with a shorter way for ordinary responses.

A connection that its server has closed is not reused, the time to connect includes the name's resolution, and
a body with invalid framing ends. See :mod:`.ordinary_response` for the shorter way.

Imported only when aiohttp does the I/O.
"""

from __future__ import annotations

import asyncio
import select
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from specclient.http_transport import lazy_httpx as httpx
from specclient.http_transport.clients.ordinary_head import ordinary_head
from specclient.http_transport.clients.ordinary_response import OrdinaryBody


class Protocol(ResponseHandler):
    """One connection, whose invalid responses end, and whose ordinary ones need no parser of aiohttp's.

    aiohttp drops the read timeout when bytes cannot be parsed, but does not tell the body that is being read,
    so that its reader would wait for ever. It also starts a timer for each read from the network; here one
    timer runs for as long as the connection is open, and looks at the time of the last read.
    """

    #: The options of aiohttp's parser while the head of a response is awaited that may be ordinary.
    _expected: dict[str, Any] | None = None
    #: The body of an ordinary response that is being received.
    _body: OrdinaryBody | None = None
    #: Whether the last response was an ordinary one: nothing may follow it.
    _is_idle = False
    #: When a silent server has taken too long, and when the timer looks next, in the loop's seconds.
    _silent_until: float | None = None
    _looks_at = 0.0
    _poll: select.poll | None = None

    def expect_response(self, read_timeout: float | None, **options: Any) -> None:
        """Await a response, which is read without aiohttp's parser if it is ordinary.

        Args:
            read_timeout: seconds of silence.
            options: those of aiohttp's parser, for other responses.
        """
        self._parser = None
        self._skip_payload = False
        self._is_idle = False
        self._read_timeout = read_timeout
        self._expected = {"read_timeout": read_timeout, "read_until_eof": True, **options}

    def set_response_params(self, **options: Any) -> None:
        """Await a response that aiohttp parses."""
        self._expected, self._is_idle = None, False
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the network."""
        options, self._expected = self._expected, None
        if options is not None:
            head = ordinary_head(data)
            if head is None:
                self.set_response_params(**options)
                super().data_received(data)
            else:
                body = self._body = OrdinaryBody(self, head.length)
                payload: Any = body
                self._payload = payload
                self._reschedule_timeout()
                self._feed_body(body, data[head.end :])
                message: Any = head, body
                self.feed_data(message, 0)
        elif self._body is not None:
            self._reschedule_timeout()
            self._feed_body(self._body, data)
        elif self._is_idle:  # what no request has asked for
            self.close()
        else:
            super().data_received(data)

    def _feed_body(self, body: OrdinaryBody, data: bytes) -> None:
        try:
            if data or body.length == 0:
                body.feed(data)
        except HttpProcessingError as error:
            self._body = None
            self.set_exception(error)
            if self.transport is not None:
                self.transport.close()
        if body.is_eof():
            self._body, self._is_idle = None, True
            self._drop_timeout()

    def hold(self) -> None:
        """Read no further bytes, because those that are held suffice; the time does not count as silence."""
        self._drop_timeout()
        if self.transport is not None:
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Read on after :meth:`hold`."""
        if self.transport is not None and self._body is not None:
            self._reschedule_timeout()
            self.transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End a body that is incomplete."""
        body, self._body = self._body, None
        if body is not None and body.exception() is None:
            body.set_exception(body.incomplete(), exc)
        super().connection_lost(exc)
        self._end_timer()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Store the exception for the reader of the response, and of its body if that has begun."""
        super().set_exception(exc, *cause)
        body = self._payload
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(
                aiohttp.ClientPayloadError(f"invalid HTTP: {exc.message.partition(chr(10))[0]}")
            )

    # The time of silence, by one timer

    def _reschedule_timeout(self) -> None:
        if not self._read_timeout:
            self._silent_until = None
            return
        self._silent_until = until = self._loop.time() + self._read_timeout
        if self._read_timeout_handle is None or until < self._looks_at:
            self._end_timer()
            self._start_timer(self._read_timeout, until)

    def _drop_timeout(self) -> None:
        self._silent_until = None
        if self.transport is None:
            self._end_timer()

    def _start_timer(self, seconds: float, at: float) -> None:
        self._looks_at = at
        self._read_timeout_handle = self._loop.call_later(seconds, self._look)

    def _end_timer(self) -> None:
        if self._read_timeout_handle is not None:
            self._read_timeout_handle.cancel()
            self._read_timeout_handle = None

    def _look(self) -> None:
        self._read_timeout_handle = None
        if self._silent_until is None:
            return
        left = self._silent_until - self._loop.time()
        if left > 0:
            self._start_timer(left, self._silent_until)
        else:
            self._on_read_timeout()

    def has_ended(self) -> bool:
        """Return whether the connection, which is idle, is readable: no response is due, so it was closed."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None:
            return False
        number = sock.fileno()
        if number < 0:
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([number], [], [], 0)[0])
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(number, select.POLLIN)
        return bool(self._poll.poll(0))


class Connector(aiohttp.TCPConnector):
    """The connections of one event loop.

    Args:
        idle: the maximum number of idle connections; one more that becomes free is closed.
        options: the options of ``aiohttp.TCPConnector``.

    Raises (when connecting):
        httpx.ConnectTimeout: resolving the host name and connecting took too long together. aiohttp's own
            limit does not include the time to resolve the name.
    """

    def __init__(self, *, idle: int, **options: Any) -> None:
        super().__init__(**options)
        factory: Any = partial(Protocol, loop=self._loop)
        self._factory = factory
        self._idle = idle

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        full = sum(map(len, self._conns.values())) >= self._idle
        super()._release(key, protocol, should_close=should_close or full)

    async def _get(self, *args: Any) -> Any:
        # The event loop learns of a closed connection only in its next iteration; the socket knows it now.
        # A request sent on such a connection is lost, and a POST must not be repeated automatically
        # (RFC 9110, section 9.2.2).
        while (connection := await super()._get(*args)) is not None:
            protocol: Any = connection.protocol
            if not protocol.has_ended():
                break
            connection.close()
        return connection

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's name
    ) -> ResponseHandler:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                return await super()._create_connection(req, traces, timeout)
        except TimeoutError:
            pass
        raise httpx.ConnectTimeout("")
