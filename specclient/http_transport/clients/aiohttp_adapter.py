"""The package's own client: requests sent directly by aiohttp.

httpx over aiohttp takes 230 µs of CPU more per request than aiohttp itself (175 µs), for objects that most
calls never use. :meth:`AiohttpResponse.as_httpx` creates them on demand. Multipart bodies, redirects and
proxies are handled by httpx.
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import os
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from specclient.errors import ConfigurationError
from specclient.http_transport import errors
from specclient.http_transport import lazy_httpx as httpx
from specclient.http_transport.body_limits import BodyReader
from specclient.http_transport.clients.adapters import fields_of
from specclient.http_transport.clients.timeouts import TimeoutSeconds
from specclient.http_transport.uploads import Upload
from specclient.runtime.forks import import_lock
from specclient.types.wire import WireRequest

if TYPE_CHECKING:
    import ssl

    import aiohttp
    import yarl

    from specclient.http_transport.clients.direct import DirectResponse
    from specclient.http_transport.clients.ordinary_response import OrdinaryBody

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization"}
)
_KEEP_ALIVE_S = 5.0  # httpx's default
_MAX_HEADER_LINE = 100 * 1024  # bytes of a response's header line, as in httpx; aiohttp's default is 8,190
_MAX_HEADERS = 10_000  # per response; httpx has no limit, aiohttp's default is 128
_LARGE_BODY = 2**20  # bytes; for longer ones aiohttp warns, and asks for a file
#: URLs that are sent unchanged (RFC 3986, section 2): no other characters, no dot-segments, no user name.
_PLAIN_URL = re.compile(
    r"https?://[\w.~\[\]:-]+(/(?!\.\.?(/|\?|#|$))([\w.~:\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)*"
    r"([?#]([\w.~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)


class AiohttpResponse:
    """A response received by aiohttp.

    Attributes:
        native: aiohttp's own response, or the response of a request that was sent without its session.
        status_code: its HTTP status.
        content: the body, empty until it has been read.
    """

    __slots__ = ("_as_httpx", "_sent", "_started_at", "content", "native", "status_code")

    def __init__(
        self, native: aiohttp.ClientResponse | DirectResponse, sent: tuple[WireRequest, Mapping[str, str]]
    ) -> None:
        self.native = native
        self.status_code = native.status
        self.content: bytes = b""
        self._sent = sent
        self._started_at = time.perf_counter()
        self._as_httpx: httpx.Response | None = None

    def fields(self) -> dict[str, str]:
        """Return its headers by lower-case name; the last value of a repeated one."""
        known: dict[str, str] | None = getattr(self.native, "fields", None)  # of one sent without the session
        return fields_of(self.native.raw_headers) if known is None else known

    def as_httpx(self) -> httpx.Response:
        """Return it as an ``httpx.Response`` with its request, and with its body if that has been read."""
        if self._as_httpx is None:
            request, headers = self._sent
            decoded = (b"content-encoding", b"transfer-encoding")  # aiohttp has undone them
            response = httpx.Response(
                self.status_code,
                headers=[(k, v) for k, v in self.native.raw_headers if k.lower() not in decoded],
                content=self.content,
                request=httpx.Request(
                    request.method,
                    request.url,
                    headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                    content=errors.printable_body(request),
                ),
                extensions={
                    "http_version": b"HTTP/1.1",
                    "reason_phrase": (self.native.reason or "").encode("ascii", "ignore"),
                },
            )
            response.elapsed = timedelta(seconds=time.perf_counter() - self._started_at)
            self._as_httpx = response
        return self._as_httpx


class AiohttpAdapter:
    """The package's own client of one event loop.

    Implements :class:`specclient.http_transport.clients.adapters.ClientAdapter`.

    Args:
        connections: the maximum number of open connections.
        idle: the maximum number of idle connections kept for later requests.
        httpx_adapter: creates the adapter of the httpx client for requests that aiohttp does not handle.
    """

    library = "httpx"

    def __init__(self, connections: int, idle: int, httpx_adapter: Callable[[], Any]) -> None:
        with import_lock:
            import aiohttp  # noqa: PLC0415 - takes 0.1 s

            from specclient.http_transport.clients.connector import Connector  # noqa: PLC0415
            from specclient.http_transport.clients.direct import DirectSender  # noqa: PLC0415

        self._aiohttp = aiohttp
        self._new_httpx_adapter = httpx_adapter
        self._httpx_adapter: Any = None
        self._tls: ssl.SSLContext | None = None
        connector = Connector(idle=idle, limit=connections, keepalive_timeout=_KEEP_ALIVE_S)
        # aiohttp before 3.13.4 has neither the option nor a limit.
        has_limit = "max_headers" in inspect.signature(aiohttp.ClientSession).parameters
        limits: dict[str, Any] = {"max_line_size": _MAX_HEADER_LINE, "max_field_size": _MAX_HEADER_LINE}
        if has_limit:
            limits["max_headers"] = _MAX_HEADERS
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # copies of a client share it with other keys
            **limits,
        )
        self._direct = DirectSender(connector, limits)
        self._proxied = bool(urllib.request.getproxies())

    async def open(self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds) -> Any:
        if request.files is not None or self._proxied:
            return await self._httpx().open(request, headers, limits)
        url, authorization = _target(request.url)
        if authorization is not None:
            headers = {**_without(headers, {"authorization"}), "authorization": authorization}
        body: Any = request.content
        if isinstance(body, Upload):
            headers = {**body.headers, **headers}
        elif body is not None and len(body) > _LARGE_BODY:
            body = io.BytesIO(body)
        native: Any = None
        timeout = _timeout(self._aiohttp, limits.connect, limits.read, limits.pool)
        tls = self._context() if url.scheme == "https" else True
        if request.method == "POST" and isinstance(body, bytes) and body:
            native = await self._direct.post(url, headers, body, timeout=timeout, ssl=tls)
        if native is None:
            native = await self._session.request(
                request.method,
                url,
                headers=headers,
                data=body,
                allow_redirects=False,
                timeout=timeout,
                ssl=tls,
            )
        if (
            native.status in _REDIRECTS
            and "location" in native.headers
            and request.follow_redirects is not False
        ):
            native.release()
            request, headers = _redirected(request, headers, native)
            return await self._httpx().open(request, headers, limits)
        return AiohttpResponse(native, (request, headers))

    async def read(self, response: Any, body: BodyReader) -> bytes:
        if not isinstance(response, AiohttpResponse):
            content: bytes = await self._httpx().read(response, body)
            return content
        # Not its own read(), which decompresses without a limit.
        stream = response.native.content
        while piece := stream.read_nowait() if stream.is_eof() else await stream.readany():
            if not body.add(piece, _compressed(stream)):
                break
        response.content = body.content()
        return response.content

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        if not isinstance(response, AiohttpResponse):
            chunks: AsyncIterator[bytes] = self._httpx().chunks(response)
            return chunks
        return aiter(response.native.content.iter_any())

    def received(self, response: Any) -> int | None:
        if not isinstance(response, AiohttpResponse):
            compressed: int | None = self._httpx().received(response)
            return compressed
        return _compressed(response.native.content)

    def fields(self, response: Any) -> dict[str, str]:
        if not isinstance(response, AiohttpResponse):
            return fields_of(response.headers.raw)
        return response.fields()

    def as_library_response(self, response: Any) -> Any:
        return response.as_httpx() if isinstance(response, AiohttpResponse) else response

    async def close(self, response: Any) -> None:
        if isinstance(response, AiohttpResponse):
            response.native.close()  # no effect on one that was read to its end: its connection is free
        else:
            await self._httpx().close(response)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()
        if self._httpx_adapter is not None:
            await self._httpx_adapter.client.aclose()

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context with the certificates that httpx trusts, created for the first https URL."""
        if self._tls is None:
            self._tls = trusted_certificates()
        return self._tls

    def _httpx(self) -> Any:
        if self._httpx_adapter is None:
            self._httpx_adapter = self._new_httpx_adapter()
        return self._httpx_adapter


def _compressed(stream: aiohttp.StreamReader | OrdinaryBody) -> int | None:
    """Return the compressed bytes received so far; None if the body is not compressed."""
    # aiohttp before 3.13.3 does not count them; there, only the size is limited.
    return getattr(stream, "total_compressed_bytes", None)


def _redirected(
    request: WireRequest,
    headers: Mapping[str, str],
    response: aiohttp.ClientResponse | DirectResponse,
) -> tuple[WireRequest, Mapping[str, str]]:
    """Return the request after a redirect (RFC 9110, section 15.4). httpx follows further redirects.

    As in httpx, any method but HEAD becomes GET after 302 and 303, and POST becomes GET after 301. Another
    origin gets no credentials, and a user name in the location is not used.

    Raises:
        httpx.RemoteProtocolError: the location is not a URL.
    """
    here = httpx.URL(request.url)
    try:
        there = here.join(response.headers["location"]).copy_with(userinfo=b"")
    except (httpx.InvalidURL, UnicodeError) as error:
        detail = str(error) if isinstance(error, httpx.InvalidURL) else "it is not UTF-8"
        reason = f"the redirect's location is not a URL: {detail}"
    else:
        reason = ""
    if reason:
        raise httpx.RemoteProtocolError(reason)
    headers = _without(headers, {"host"})
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        upgraded = here.host == there.host and there.scheme == "https" and here.port == there.port is None
        if not upgraded:
            headers = _without(headers, _CREDENTIALS)
    redirected = replace(request, url=str(there))
    keeps_method = {301: request.method != "POST", 302: False, 303: False}.get(response.status, True)
    if keeps_method or request.method in ("GET", "HEAD"):
        return redirected, headers
    headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
    return replace(redirected, method="GET", content=None), headers


def _without(headers: Mapping[str, str], names: Set[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


@functools.lru_cache(maxsize=256)
def _target(url: str) -> tuple[yarl.URL, str | None]:
    """Return a URL as httpx would send it, and the Authorization header for a user name in it.

    Raises:
        httpx.InvalidURL: httpx would raise it.
        httpx.UnsupportedProtocol: the URL has no host, or a scheme other than http and https.
    """
    import yarl  # noqa: PLC0415 - comes with aiohttp

    if _PLAIN_URL.fullmatch(url):
        return yarl.URL(url, encoded=True), None
    parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise httpx.UnsupportedProtocol("the URL names no server: it must begin with http:// or https://")
    target = yarl.URL(str(parsed.copy_with(userinfo=b"")), encoded=True)
    if not parsed.userinfo:
        return target, None
    user, _, password = parsed.userinfo.decode().partition(":")
    credentials = f"{unquote(user)}:{unquote(password)}"
    return target, f"Basic {base64.b64encode(credentials.encode()).decode()}"


@functools.lru_cache(maxsize=64)
def _timeout(library: Any, connect: float | None, read: float | None, pool: float | None) -> Any:
    # The same mapping as httpx-aiohttp: aiohttp has no time limit for writing, and its `connect` includes
    # the wait for a free connection. 0 means no limit to aiohttp; httpx fails at once.
    if connect == 0:
        raise httpx.ConnectTimeout("")
    if read == 0:
        raise httpx.ReadTimeout("")
    return library.ClientTimeout(total=None, sock_connect=connect, sock_read=read, connect=pool or connect)


def trusted_certificates() -> ssl.SSLContext:
    """Return a TLS context with the certificates that httpx trusts.

    Those are the ones of SSL_CERT_FILE or SSL_CERT_DIR, otherwise certifi's
    (https://www.python-httpx.org/environment_variables/#ssl_cert_file).

    Raises:
        ConfigurationError: the file cannot be read, or holds no certificates.
    """
    import ssl  # noqa: PLC0415 - only needed for https

    import certifi  # noqa: PLC0415

    name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
    try:
        if name == "SSL_CERT_DIR":
            return ssl.create_default_context(capath=os.environ[name])
        return ssl.create_default_context(cafile=os.environ[name] if name else certifi.where())
    except OSError as error:  # an SSLError, too
        reason = error.strerror or str(error)
    source = f"{name}={os.environ[name]}" if name else "certifi's file"
    raise ConfigurationError(
        f"the certificates of {source} cannot be read: {reason}; it must name certificates in PEM form"
    )
