"""Turn requests into aiohttp's own, with nothing in between: what our own client does for all but rare ones.

httpx over aiohttp's sockets costs 230 µs of CPU more for each request than aiohttp by itself (175 µs), for
objects that most calls never look at. They are made when somebody does: see :meth:`Response.as_httpx`.
What httpx does better is left to it: multipart bodies, redirects, proxies.
"""

from __future__ import annotations

import functools
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


class Response:
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
                request=httpx.Request(request.method, request.url, headers=headers, content=request.content),
                extensions={
                    "http_version": b"HTTP/1.1",
                    "reason_phrase": (self.reply.reason or "").encode("ascii", "ignore"),
                },
            )
            made.elapsed = timedelta(seconds=time.perf_counter() - self._begun)
            self._made = made
        return self._made


class DirectLink:
    """Our own client of one event loop; see :class:`specclient.transport.clients.Link`.

    Args:
        timeout, limits: httpx's objects.
        fallback: makes the httpx client for what is left to it.
    """

    vendor: ModuleType = httpx

    def __init__(self, limits: httpx.Limits, fallback: Any) -> None:
        import aiohttp  # noqa: PLC0415  0.1 s to import

        self._aiohttp = aiohttp
        self._make = fallback
        self._made: Any = None
        connector = aiohttp.TCPConnector(
            limit=limits.max_connections or 0, keepalive_timeout=limits.keepalive_expiry or _KEEP_ALIVE_S
        )
        self._session = aiohttp.ClientSession(
            connector=connector, max_line_size=_LONGEST_LINE, max_field_size=_LONGEST_LINE
        )
        self._proxied = bool(urllib.request.getproxies())

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: Any, *, stream: bool
    ) -> Any:
        if request.files is not None or self._proxied:
            return await self._httpx().open(request, headers, limits, stream=stream)
        url = _parsed(request.url)
        reply = await self._session.request(
            request.method,
            url,
            headers=headers,
            data=request.content,
            allow_redirects=False,
            timeout=_timeout(self._aiohttp, limits.connect, limits.read, limits.pool),
            ssl=_context() if url.scheme == "https" else True,
        )
        if (
            reply.status in _REDIRECTS
            and "location" in reply.headers
            and request.follow_redirects is not False
        ):
            reply.release()
            request, headers = _redirected(request, headers, reply)
            return await self._httpx().open(request, headers, limits, stream=stream)
        response = Response(reply, (request, headers))
        if not stream:
            response.content = await reply.read()
        return response

    async def read(self, response: Any) -> bytes:
        if not isinstance(response, Response):
            content: bytes = await self._httpx().read(response)
            return content
        response.content = await response.reply.read()
        return response.content

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        if not isinstance(response, Response):
            found: AsyncIterator[bytes] = self._httpx().chunks(response)
            return found
        return aiter(response.reply.content.iter_any())

    def head(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        raw: Iterable[tuple[bytes, bytes]]
        raw = response.reply.raw_headers if isinstance(response, Response) else response.headers.raw
        return raw

    def library(self, response: Any) -> Any:
        return response.as_httpx() if isinstance(response, Response) else response

    async def close(self, response: Any) -> None:
        if isinstance(response, Response):
            response.reply.close()  # one that was read to its end has given its connection back already
        else:
            await self._httpx().close(response)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()
        if self._made is not None:
            await self._made.client.aclose()

    def _httpx(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


def _redirected(
    request: WireRequest, headers: Mapping[str, str], reply: aiohttp.ClientResponse
) -> tuple[WireRequest, Mapping[str, str]]:
    """Return the request that a redirect asks for (RFC 9110, section 15.4); the next one is httpx's.

    As with httpx, a POST becomes a GET but for 307 and 308, and another origin gets no credentials.
    """
    here = httpx.URL(request.url)
    there = here.join(reply.headers["location"])
    headers = {name: value for name, value in headers.items() if name.lower() != "host"}
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        upgraded = here.host == there.host and there.scheme == "https" and here.port == there.port is None
        if not upgraded:
            headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
    moved = replace(request, url=str(there))
    if reply.status in (307, 308) or request.method in ("GET", "HEAD"):
        return moved, headers
    headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
    return replace(moved, method="GET", content=None), headers


@functools.lru_cache(maxsize=256)
def _parsed(url: str) -> yarl.URL:
    import yarl  # noqa: PLC0415  comes with aiohttp

    return yarl.URL(url, encoded=True)


@functools.lru_cache(maxsize=64)
def _timeout(library: Any, connect: float | None, read: float | None, pool: float | None) -> Any:
    # As httpx-aiohttp maps them: aiohttp has no time limit for writing, and its `connect` covers the pool.
    return library.ClientTimeout(total=None, sock_connect=connect, sock_read=read, connect=pool)


@functools.cache
def _context() -> ssl.SSLContext:
    """Return the certificates that httpx trusts; read once, and only where something is encrypted."""
    return httpx.create_ssl_context()
