"""Ordinary POST requests over aiohttp's connections, without its session.

The session makes a request object, a writer, a task and a response object for each request, which take 0.1
ms of processor time. A request with a short body in memory and ordinary headers is written here to a
connection of the session's own pool in one piece. All others go through the session, and so do all requests
with a version of aiohttp that lacks one of the methods used here.

Imported only when aiohttp does the I/O.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from specclient.http_transport.clients.adapters import fields_of
from specclient.http_transport.clients.ordinary_head import OrdinaryHead
from specclient.http_transport.clients.ordinary_response import OrdinaryBody

if TYPE_CHECKING:
    import ssl

    import yarl

    from specclient.http_transport.clients.connector import Connector

#: Headers that describe the framing of the body or the connection; requests that have one are not ordinary.
_OF_THE_FRAMING = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
#: Characters that no header may have (RFC 9110, section 5.5); the session refuses them.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MOST_TEMPLATES = 256
#: Methods of aiohttp's connections that its documentation does not promise.
_METHODS = ("set_response_params", "start_timeout", "read")


class DirectResponse:
    """A response with its body unread; it has the members of ``aiohttp.ClientResponse`` that are used.

    Attributes:
        status: of its status line.
        content: its body, decompressed.
    """

    __slots__ = ("_connection", "_message", "content", "status")

    def __init__(self, connection: Any, message: Any, content: aiohttp.StreamReader | OrdinaryBody) -> None:
        self.status: int = message.code
        self.content = content
        self._message = message
        self._connection = connection
        content.on_eof(self._free)

    @property
    def reason(self) -> str | None:
        """The words after the status."""
        reason: str | None = self._message.reason
        return reason

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, of any case."""
        headers: Mapping[str, str] = self._message.headers
        return headers

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Names and values as received."""
        raw: tuple[tuple[bytes, bytes], ...] = self._message.raw_headers
        return raw

    @property
    def fields(self) -> dict[str, str]:
        """The headers by lower-case name; the last value of a repeated one."""
        message = self._message
        return message.fields if isinstance(message, OrdinaryHead) else fields_of(message.raw_headers)

    def _free(self) -> None:
        """Return the connection to the pool, which closes it if it cannot be used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()

    def release(self) -> None:
        """Free the connection without reading the rest of the body."""
        self._end_reading()
        self._free()

    def close(self) -> None:
        """Close the connection; no effect if the body was read to its end, because it is free then."""
        self._end_reading()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _end_reading(self) -> None:
        if self._connection is not None and self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))


class _Template(NamedTuple):
    """The common parts of all requests to one URL.

    Attributes:
        request: aiohttp's own request, by which its connector finds a connection.
        head: the request line and the header ``Host``.
        defaults: headers that aiohttp adds unless the request has them, by lower-case name.
    """

    request: aiohttp.ClientRequest
    head: str
    defaults: dict[str, str]


class DirectSender:
    """Sends ordinary requests over the connections of a session.

    Args:
        connector: the session's connections.
        limits: the options of aiohttp's parser of responses.
    """

    def __init__(self, connector: Connector, limits: Mapping[str, Any]) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._limits = dict(limits)
        self._templates: dict[tuple[yarl.URL, ssl.SSLContext | bool], _Template] = {}
        self._usable = all(hasattr(ResponseHandler, name) for name in _METHODS)

    async def post(
        self,
        url: yarl.URL,
        headers: Mapping[str, str],
        content: bytes,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's name
        ssl: ssl.SSLContext | bool,
    ) -> DirectResponse | None:
        """Send a request and return its response at the end of the headers; None if it was not sent.

        Args:
            url: where it goes.
            headers: its headers.
            content: its body, which is not empty.
            timeout: the limits of single waits; ``total`` has no effect.
            ssl: the TLS context of an https URL, else true.

        Raises:
            aiohttp.ClientError: as ``ClientSession.request``.
        """
        if not self._usable:
            return None
        template = self._template(url, ssl)
        head = _head(template, headers, len(content))
        if head is None:
            return None
        try:
            connection = await self._connector.connect(template.request, traces=[], timeout=timeout)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {url}") from error
        try:
            protocol, transport = _opened(connection)
            protocol.expect_response(timeout.sock_read, **self._limits)
            transport.write(head + content)
            protocol.start_timeout()
            while True:  # until the last response; those before it are informational (RFC 9110, section 15.2)
                message, body = await protocol.read()
                if not 100 <= message.code < 200 or message.code == 101:
                    return DirectResponse(connection, message, body)
        except HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientResponseError(
                template.request.request_info,
                (),
                status=error.code,
                message=error.message,
                headers=error.headers,
            ) from error
        except BaseException:
            connection.close()
            raise

    def _template(self, url: yarl.URL, ssl: ssl.SSLContext | bool) -> _Template:
        found = self._templates.get((url, ssl))
        if found is None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            found = self._templates[url, ssl] = _new_template(url, ssl, self._loop)
        return found


def _opened(connection: Any) -> tuple[Any, asyncio.Transport]:
    """Return the protocol and the transport of a connection.

    Raises:
        aiohttp.ClientConnectionResetError: it has been closed, and nothing was sent.
    """
    protocol = connection.protocol
    transport: asyncio.Transport | None = None if protocol is None else protocol.transport
    if transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
    return protocol, transport


def _new_template(url: yarl.URL, ssl: ssl.SSLContext | bool, loop: asyncio.AbstractEventLoop) -> _Template:
    request: Any = aiohttp.ClientRequest("POST", url, loop=loop, ssl=ssl)
    defaults = {name.lower(): f"{name}: {value}\r\n" for name, value in request.headers.items()}
    host = defaults.pop("host")
    defaults.pop("content-length", None)
    return _Template(request, f"POST {url.raw_path_qs} HTTP/1.1\r\n{host}", defaults)


def _head(template: _Template, headers: Mapping[str, str], length: int) -> bytes | None:
    """Return the head of a request as aiohttp writes it; None if the request is not ordinary."""
    names = {*map(str.lower, headers)}
    if "content-type" not in names or not names.isdisjoint(_OF_THE_FRAMING):
        return None
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if _FORBIDDEN.search("".join(lines)):
        return None
    added = "".join([line for name, line in template.defaults.items() if name not in names])
    given = "\r\n".join(lines)
    return f"{template.head}{given}\r\n{added}Content-Length: {length}\r\n\r\n".encode()
