"""Turn an HTTP client, ours or the user's, sync or async, into one small async interface."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import inspect
import logging
import math
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from specclient.errors import ConfigurationError
from specclient.runtime.forks import import_lock
from specclient.transport.clients import redirects
from specclient.transport.clients.aiohttp_adapter import AiohttpAdapter, trusted_certificates
from specclient.transport.uploads import Upload
from specclient.transport.vendor import httpx
from specclient.types.wire import WireRequest

if TYPE_CHECKING:
    import anyio


class TimeoutSeconds(NamedTuple):
    """Time limits, in seconds, None for none, as an ``httpx.Timeout`` has them."""

    connect: float | None
    read: float | None
    write: float | None
    pool: float | None


ClientKind = Literal["aiohttp", "httpx"]
DEFAULT_TIMEOUT_SECONDS = TimeoutSeconds(connect=5.0, read=600.0, write=600.0, pool=600.0)
MAX_CONNECTIONS = 1000
MAX_IDLE_CONNECTIONS = 100  # connections that are kept for later requests
_SENDERS = MAX_CONNECTIONS  # threads of one user's sync client
_UNTOUCHED = TimeoutSeconds(5.0, 5.0, 5.0, 5.0)  # what httpx gives a client whose maker named no timeout


class ClientAdapter(Protocol):
    """A client as the transport drives it. ``vendor`` is the library it belongs to (httpx or httpx2)."""

    vendor: ModuleType

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds, *, stream: bool
    ) -> Any:
        """Send; return the library's response: read whole, or at its headers with ``stream``."""
        ...

    async def read(self, response: Any) -> bytes:
        """Read what is left of a streamed response."""
        ...

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        """Iterate over a streamed response's body, decompressed, as it arrives."""
        ...

    def head(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        """Return a response's headers as they came."""
        ...

    def library(self, response: Any) -> Any:
        """Return a response as an object of the library's own."""
        ...

    async def close(self, response: Any) -> None:
        """Give the connection back, or drop it where the body was not read to its end."""
        ...


class AsyncClientAdapter:
    """An ``AsyncClient``."""

    def __init__(self, client: Any, vendor: ModuleType = httpx) -> None:
        self.client = client
        self.vendor = vendor
        redirects.drop_keys_on_redirect(client, is_async=True)

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds, *, stream: bool
    ) -> Any:
        content: Any = request.content
        if isinstance(content, Upload):
            headers = {**content.headers, **headers}
        built = _build(self, request, headers, limits, content)
        return await self.client.send(built, stream=stream, **_how(request))

    async def read(self, response: Any) -> bytes:
        content: bytes = await response.aread()
        return content

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        if "content-encoding" in response.headers or response.is_stream_consumed:  # or read by a user's hook
            return aiter(response.aiter_bytes())
        return aiter(response.stream)  # half the CPU of aiter_bytes, which would have nothing to decode

    def head(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        # The bytes: reading a header by name through the library costs microseconds each time.
        raw: Iterable[tuple[bytes, bytes]] = response.headers.raw
        return raw

    def library(self, response: Any) -> Any:
        return response

    async def close(self, response: Any) -> None:
        await response.aclose()

    async def aclose(self) -> None:
        """Close the client."""
        await self.client.aclose()


class _OwnHttpxAdapter(AsyncClientAdapter):
    """A client of ours: what httpx logs of its requests, with whole URLs, is cut to what may be shown."""

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds, *, stream: bool
    ) -> Any:
        token = _ours.set(True)
        try:
            return await super().open(request, headers, limits, stream=stream)
        finally:
            _ours.reset(token)


_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("ours", default=False)


def _cut_urls(record: logging.LogRecord) -> bool:
    if _ours.get() and isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None, userinfo=b"") if isinstance(arg, httpx.URL) else arg
            for arg in record.args
        )
    return True


#: A link to a client that we have made, and close.
OwnAdapter = _OwnHttpxAdapter | AiohttpAdapter


class ThreadedClientAdapter:
    """A sync ``Client``; each blocking step runs in a worker thread.

    Its threads are its own: a server that hangs holds up neither other clients nor whoever else uses worker
    threads. Sending takes one of as many as there are connections; a step of an answer that has begun never
    waits for one, since it is what gives a connection back.
    """

    def __init__(self, client: Any, vendor: ModuleType = httpx) -> None:
        with import_lock:
            import anyio  # noqa: PLC0415 - only for such clients

        self.client = client
        self.vendor = vendor
        self._limiter = anyio.CapacityLimiter
        self._senders: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = (
            weakref.WeakKeyDictionary()
        )
        redirects.drop_keys_on_redirect(client, is_async=False)

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: TimeoutSeconds, *, stream: bool
    ) -> Any:
        content: Any = request.content
        if isinstance(content, Upload):
            headers, content = {**content.headers, **headers}, content.pieces
        built = _build(self, request, headers, limits, content)
        send = partial(self.client.send, built, stream=stream, **_how(request))
        return await _in_thread(send, lambda reply: reply.close(), self._sender())

    def _sender(self) -> anyio.CapacityLimiter:
        loop = asyncio.get_running_loop()
        if (found := self._senders.get(loop)) is None:
            found = self._senders[loop] = self._limiter(_SENDERS)
        return found

    async def read(self, response: Any) -> bytes:
        content: bytes = await _in_thread(response.read, late=lambda _: response.close())
        return content

    async def chunks(self, response: Any) -> AsyncIterator[bytes]:
        pieces: Iterator[bytes] = response.iter_bytes()
        step = partial(next, pieces, None)
        while (piece := await _in_thread(step, late=lambda _: response.close())) is not None:
            yield piece

    def head(self, response: Any) -> Iterable[tuple[bytes, bytes]]:
        raw: Iterable[tuple[bytes, bytes]] = response.headers.raw
        return raw

    def library(self, response: Any) -> Any:
        return response

    async def close(self, response: Any) -> None:
        await _in_thread(response.close, lambda _: None)


async def _in_thread(
    step: Callable[[], Any], late: Callable[[Any], None], limiter: anyio.CapacityLimiter | None = None
) -> Any:
    """Run a blocking step; a cancelled caller leaves at once, and ``late`` tidies up when the step ends.

    Args:
        limiter: of how many run at once; None for no limit.
    """
    with import_lock:
        import anyio.to_thread  # noqa: PLC0415 - only for such clients

    abandoned = False
    limiter = limiter or anyio.CapacityLimiter(1)

    def run() -> Any:
        result = step()
        if abandoned:
            with contextlib.suppress(Exception):
                late(result)
        return result

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    except asyncio.CancelledError:
        abandoned = True
        raise


def _build(
    link: AsyncClientAdapter | ThreadedClientAdapter,
    request: WireRequest,
    headers: Mapping[str, str],
    limits: TimeoutSeconds,
    content: Any,
) -> Any:
    body = {"content": content} if request.files is None else {"data": request.data, "files": request.files}
    timeout = link.vendor.Timeout(**limits._asdict())
    built = link.client.build_request(request.method, request.url, headers=headers, timeout=timeout, **body)
    built.extensions[redirects.EXTENSION] = redirects.origin(built.url)
    return built


def _how(request: WireRequest) -> dict[str, bool]:
    follow = request.follow_redirects
    return {} if follow is None else {"follow_redirects": follow}


def adapter_of(http_client: Any) -> AsyncClientAdapter | ThreadedClientAdapter:
    """Return the link for a user's own client, told by what it can do and not by its class.

    Raises:
        ConfigurationError: for an object that is neither an async nor a sync client.
    """
    vendor = next(
        (
            sys.modules[package]
            for cls in type(http_client).__mro__
            if (package := cls.__module__.partition(".")[0]) in ("httpx", "httpx2")
        ),
        None,
    )
    if vendor is None:
        cls = type(http_client)
        raise ConfigurationError(
            f"http_client is a {cls.__module__}.{cls.__qualname__}; it must be an httpx.AsyncClient or "
            "httpx.Client (or one of httpx2)"
        )
    return (AsyncClientAdapter if inspect.iscoroutinefunction(http_client.send) else ThreadedClientAdapter)(
        http_client, vendor
    )


def seconds_of(value: Any) -> TimeoutSeconds:
    """Return a time limit of the user's as those of a request's parts.

    Args:
        value: seconds for each of connect, read, write and pool (``math.inf`` for none), or a timeout object
            of httpx or httpx2.

    Raises:
        ConfigurationError: for any other value.
    """
    if isinstance(value, TimeoutSeconds):
        return value
    if all(hasattr(value, part) for part in TimeoutSeconds._fields):
        return TimeoutSeconds(*(getattr(value, part) for part in TimeoutSeconds._fields))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ConfigurationError(
            f"timeout is {value!r}; it must be seconds, 0 or more (math.inf for none), or an httpx.Timeout"
        )
    return TimeoutSeconds(*[None if math.isinf(value) else value] * len(TimeoutSeconds._fields))


def own_timeout(http_client: Any) -> Any:
    """Return a user's client's own timeout object, None where none was set on it."""
    own = getattr(http_client, "timeout", _UNTOUCHED)
    return None if seconds_of(own) == _UNTOUCHED else own


class LoopClients:
    """Our own clients, one for each running event loop, each closed with its loop or with this object.

    Args:
        kind: ``aiohttp`` for httpx over aiohttp's sockets, ``httpx`` for httpx's own.
        connections: the most that each may hold at once; more requests wait.

    Raises:
        ConfigurationError: for another kind.
    """

    def __init__(self, kind: ClientKind, connections: int = MAX_CONNECTIONS) -> None:
        if kind not in ("aiohttp", "httpx"):
            raise ConfigurationError(f"the transport kind is {kind!r}; it must be 'aiohttp' or 'httpx'")
        self.kind = kind
        self._connections = connections
        self._held: dict[asyncio.AbstractEventLoop, _LoopClient] = {}

    def prepare(self) -> None:
        """Import what the clients are made of."""
        if self.kind == "httpx":
            _ = httpx.AsyncClient
        else:
            importlib.import_module("specclient.transport.clients.connector")

    async def link(self) -> OwnAdapter:
        """Return the client of the running loop, built on first use."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            for ended in [other for other in list(self._held) if other.is_closed()]:
                if (stale := self._held.pop(ended, None)) is not None:
                    stale.let_go()
            logging.getLogger("httpx").addFilter(_cut_urls)  # once, however often it is added
            keeper = _keep(_own_link(self.kind, self._connections))
            link = await anext(keeper)
            # The finalizer's own reference keeps the client out of reference cycles this object may be in:
            # the garbage collector would find its sockets unclosed before anyone could close them.
            held = self._held[loop] = _LoopClient(
                link, keeper, weakref.finalize(self, _let_go, loop, keeper, link)
            )
            held.let_go.atexit = False  # then a stream may still run, in a thread that outlives this object
        return held.link

    async def aclose(self) -> None:
        """Close the running loop's client; those of other loops close with their loops."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            held.let_go.detach()
            await held.keeper.aclose()


class _LoopClient(NamedTuple):
    link: OwnAdapter
    keeper: AsyncGenerator[OwnAdapter]
    let_go: weakref.finalize[[asyncio.AbstractEventLoop, AsyncGenerator[OwnAdapter], OwnAdapter], LoopClients]


async def _keep(link: OwnAdapter) -> AsyncGenerator[OwnAdapter]:
    """Close a client inside the loop that owns its sockets, when that loop ends.

    An async generator, because ``loop.shutdown_asyncgens`` (which ``asyncio.run`` calls) finalises those.
    """
    try:
        yield link
    finally:
        await link.aclose()


def _let_go(loop: asyncio.AbstractEventLoop, keeper: AsyncGenerator[OwnAdapter], link: OwnAdapter) -> None:
    """Close a client nobody can reach any more, from any thread; of a loop that is gone, without a sound."""
    with contextlib.suppress(RuntimeError, StopIteration):  # RuntimeError: the loop has ended meanwhile
        if loop.is_closed():
            link.aclose().send(None)  # nothing is left to wait for, so one step runs it to its end
        else:
            loop.call_soon_threadsafe(lambda: loop.create_task(_finish(keeper)))


async def _finish(keeper: AsyncGenerator[OwnAdapter]) -> None:
    await keeper.aclose()


def _own_link(kind: ClientKind, connections: int) -> OwnAdapter:
    def by_httpx() -> _OwnHttpxAdapter:
        return _OwnHttpxAdapter(new_client(kind, connections))

    return by_httpx() if kind == "httpx" else AiohttpAdapter(connections, MAX_IDLE_CONNECTIONS, by_httpx)


def new_client(kind: ClientKind, connections: int) -> httpx.AsyncClient:
    """Return an async client; proxies and certificates come from the environment, as with httpx.

    Raises:
        ConfigurationError: for certificates that cannot be read.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy  # noqa: PLC0415  httpx brings it

    options: dict[str, Any] = {
        "timeout": httpx.Timeout(**DEFAULT_TIMEOUT_SECONDS._asdict()),
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
        "follow_redirects": True,
        "verify": trusted_certificates(),
        # none: copies with other keys share it
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    }
    if kind == "httpx":
        return httpx.AsyncClient(**options)
    with import_lock:
        from httpx_aiohttp import HttpxAiohttpClient  # noqa: PLC0415  aiohttp takes 0.1 s to import

    return HttpxAiohttpClient(**options)
