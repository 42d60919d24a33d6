"""Turn requests into aiohttp's own, with nothing in between: what our own client does for all but rare ones.

httpx over aiohttp's sockets costs 230 µs of CPU more for each request than aiohttp by itself (175 µs), for
objects that most calls never look at. They are made when somebody does: see :meth:`AiohttpResponse.as_httpx`.
What httpx does better is left to it: multipart bodies, redirects, proxies.
"""

from __future__ import annotations

import base64
import functools
import io
import os
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient.transport import errors
from specclient.transport.uploads import Upload
from specclient.transport.vendor import httpx
from specclient.types.wire import WireRequest

if TYPE_CHECKING:
    import ssl

    import aiohttp
    import yarl

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization"}
)
_KEEP_ALIVE_S = 5.0  # httpx's own
_LONGEST_LINE = 100 * 1024  # of a response's head, in bytes; as httpx's; aiohttp's own is 8,190
_MOST_HEADERS = 10_000  # of a response; httpx has no limit, aiohttp's own is 128
_LARGE = 2**20  # bytes of a body from which aiohttp warns, and wants a file
#: URLs that are sent as they are (RFC 3986, section 2): no other characters, no dot-segments, no user.
_PLAIN_URL = re.compile(
    r"https?://[\w.~\[\]:-]+(/(?!\.\.?(/|\?|#|$))([\w.~:\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)*"
    r"([?#]([\w.~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)


class AiohttpResponse:
    """A response of aiohttp's, as the transport reads it.

    Attributes:
        status_code: of the answer.
        content: the body, once it has been read.
    """

    __slots__ = ("_begun", "_made", "_sent", "content", "reply", "status_code")

    def __init__(self, reply: aiohttp.ClientResponse, sent: tuple[WireRequest, Mapping[str, str]]) -> None:
        self.reply = reply
        self.status_code = reply.status
        self.content: bytes = b""
        self._sent = sent
        self._begun = time.perf_counter()
        self._made: httpx.Response | None = None

    def as_httpx(self) -> httpx.Response:
        """Return it as an ``httpx.Response``, with its request, and its body where that has been read."""
        if self._made is None:
            request, headers = self._sent
            unlike = (b"content-encoding", b"transfer-encoding")  # aiohttp has undone them
            made = httpx.Response(
                self.status_code,
                headers=[(k, v) for k, v in self.reply.raw_headers if k.lower() not in unlike],
                content=self.content,
                request=httpx.Request(
                    request.method, request.url, headers=headers, content=errors.printable_body(request)
                ),
                extensions={
                    "http_version": b"HTTP/1.1",
                    "reason_phrase": (self.reply.reason or "").encode("ascii", "ignore"),
                },
            )
            made.elapsed = timedelta(seconds=time.perf_counter() - self._begun)
            self._made = made
        return self._made


class AiohttpAdapter:
    """Our own client of one event loop; see :class:`specclient.transport.clients.adapters.ClientAdapter`.

    Args:
        connections: the most that it may hold at once.
        idle: how many of them are kept for later requests.
        fallback: makes the httpx client for what is left to it.
    """

    vendor: ModuleType = httpx

    def __init__(self, connections: int, idle: int, fallback: Any) -> None:
        with import_lock:
            from specclient.transport.clients.connector import Connector  # noqa: PLC0415
            from specclient.transport.sockets import aiohttp  # noqa: PLC0415  0.1 s to import

        self._aiohttp = aiohttp
        self._make = fallback
        self._made: Any = None
        self._tls: ssl.SSLContext | None = None
        connector = Connector(idle=idle, limit=connections, keepalive_timeout=_KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # copies of a client share it, with other keys
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
        )
        self._proxied = bool(urllib.request.getproxies())

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: Any, *, stream: bool
    ) -> Any:
        if request.files is not None or self._proxied:
            return await self._httpx().open(request, headers, limits, stream=stream)
        url, authorization = _target(request.url)
        if authorization is not None:
            headers = {**_without(headers, {"authorization"}), "authorization": authorization}
        body: Any = request.content
        if isinstance(body, Upload):
            headers = {**body.headers, **headers}
        elif body is not None and len(body) > _LARGE:
            body = io.BytesIO(body)
        reply = await self._session.request(
            request.method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            timeout=_timeout(self._aiohttp, limits.connect, limits.read, limits.pool),
            ssl=self._context() if url.scheme == "https" else True,
        )
        if (
            reply.status in _REDIRECTS
            and "location" in reply.headers
            and request.follow_redirects is not False
        ):
            reply.release()
            request, headers = _redirected(request, headers, reply)
            return await self._httpx().open(request, headers, limits, stream=stream)
        response = AiohttpResponse(reply, (request, headers))
        if not stream:
            response.content = await reply.read()
        return response

    async def read(self, response: Any) -> bytes:
        if not isinstance(response, AiohttpResponse):
            content: bytes = await self._httpx().read(response)
            return content
        response.content = await response.reply.read()
        return response.content

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        if not isinstance(response, AiohttpResponse):
            found: AsyncIterator[bytes] = self._httpx().chunks(response)
            return found
        return aiter(response.reply.content.iter_any())

    def head(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        raw: Iterable[tuple[bytes, bytes]]
        raw = response.reply.raw_headers if isinstance(response, AiohttpResponse) else response.headers.raw
        return raw

    def library(self, response: Any) -> Any:
        return response.as_httpx() if isinstance(response, AiohttpResponse) else response

    async def close(self, response: Any) -> None:
        if isinstance(response, AiohttpResponse):
            response.reply.close()  # one that was read to its end has given its connection back already
        else:
            await self._httpx().close(response)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()
        if self._made is not None:
            await self._made.client.aclose()

    def _context(self) -> ssl.SSLContext:
        """Return the certificates that httpx trusts, read when something is to be encrypted first."""
        if self._tls is None:
            self._tls = trusted_certificates()
        return self._tls

    def _httpx(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


def _redirected(
    request: WireRequest, headers: Mapping[str, str], reply: aiohttp.ClientResponse
) -> tuple[WireRequest, Mapping[str, str]]:
    """Return the request that a redirect asks for (RFC 9110, section 15.4); the next one is httpx's.

    As with httpx, what becomes a GET is any method but HEAD for 302 and 303, and a POST for 301; another
    origin gets no credentials, and those that the location names are not used.

    Raises:
        httpx.RemoteProtocolError: for a location that is no URL.
    """
    here = httpx.URL(request.url)
    try:
        there = here.join(reply.headers["location"]).copy_with(userinfo=b"")
    except httpx.InvalidURL as error:
        reason = f"the redirect's location is no URL: {error}"
    else:
        reason = ""
    if reason:
        raise httpx.RemoteProtocolError(reason)
    headers = _without(headers, {"host"})
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        upgraded = here.host == there.host and there.scheme == "https" and here.port == there.port is None
        if not upgraded:
            headers = _without(headers, _CREDENTIALS)
    moved = replace(request, url=str(there))
    kept = {301: request.method != "POST", 302: False, 303: False}.get(reply.status, True)
    if kept or request.method in ("GET", "HEAD"):
        return moved, headers
    headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
    return replace(moved, method="GET", content=None), headers


def _without(headers: Mapping[str, str], names: Set[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


@functools.lru_cache(maxsize=256)
def _target(url: str) -> tuple[yarl.URL, str | None]:
    """Return a URL as httpx would send it, and the Authorization that it asks for, by a user's name in it.

    Raises:
        httpx.InvalidURL: where httpx would.
    """
    import yarl  # noqa: PLC0415  comes with aiohttp

    if _PLAIN_URL.fullmatch(url):
        return yarl.URL(url, encoded=True), None
    made = httpx.URL(url)
    if made.scheme not in ("http", "https") or not made.host:
        raise httpx.UnsupportedProtocol("the URL names no server: it must begin with http:// or https://")
    bare = yarl.URL(str(made.copy_with(userinfo=b"")), encoded=True)
    if not made.userinfo:
        return bare, None
    user, _, password = made.userinfo.decode().partition(":")
    pair = f"{unquote(user)}:{unquote(password)}"
    return bare, f"Basic {base64.b64encode(pair.encode()).decode()}"


@functools.lru_cache(maxsize=64)
def _timeout(library: Any, connect: float | None, read: float | None, pool: float | None) -> Any:
    # As httpx-aiohttp maps them: aiohttp has no time limit for writing, and its `connect` covers the pool.
    # It takes 0 for no limit, where httpx gives up at once.
    if connect == 0:
        raise httpx.ConnectTimeout("")
    if read == 0:
        raise httpx.ReadTimeout("")
    return library.ClientTimeout(total=None, sock_connect=connect, sock_read=read, connect=pool or connect)


def trusted_certificates() -> ssl.SSLContext:
    """Return the certificates that httpx trusts: those of SSL_CERT_FILE or SSL_CERT_DIR, else certifi's.

    https://www.python-httpx.org/environment_variables/#ssl_cert_file

    Raises:
        ConfigurationError: for a file that cannot be read, or holds none.
    """
    import ssl  # noqa: PLC0415 - for https alone

    import certifi  # noqa: PLC0415

    name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
    try:
        if name == "SSL_CERT_DIR":
            return ssl.create_default_context(capath=os.environ[name])
        return ssl.create_default_context(cafile=os.environ[name] if name else certifi.where())
    except OSError as error:  # an SSLError, too
        reason = error.strerror or str(error)
    told = f"{name}={os.environ[name]}" if name else "certifi's file"
    raise ConfigurationError(
        f"the certificates of {told} cannot be read: {reason}; it must name certificates in PEM form"
    )
