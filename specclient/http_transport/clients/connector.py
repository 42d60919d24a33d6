"""aiohttp's connections, without three of its faults.

A connection that its server has closed is not reused, the time to connect includes the name's resolution, and
a body with invalid framing ends.

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


class Protocol(ResponseHandler):
    """One connection, whose invalid responses end.

    aiohttp drops the read timeout when bytes cannot be parsed, but does not tell the body that is being read,
    so that its reader would wait for ever.
    """

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Store the exception for the reader of the response, and of its body if that has begun."""
        super().set_exception(exc, *cause)
        body = self._payload
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(
                aiohttp.ClientPayloadError(f"invalid HTTP: {exc.message.partition(chr(10))[0]}")
            )


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
        while (connection := await super()._get(*args)) is not None and _has_ended(connection.protocol):
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


def _has_ended(protocol: ResponseHandler | None) -> bool:
    """Return whether an idle connection is readable: no response is due, so it has been closed."""
    transport = None if protocol is None else protocol.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None:
        return False
    number = sock.fileno()
    if not hasattr(select, "poll"):  # Windows
        return number < 0 or bool(select.select([number], [], [], 0)[0])
    if number < 0:
        return True
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
