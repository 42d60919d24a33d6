"""The package's own HTTP clients: one for each event loop, closed with it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import urllib.request
import weakref
from collections.abc import AsyncGenerator
from typing import Any, Literal, NamedTuple

from specclient.errors import ConfigurationError
from specclient.http_transport import lazy_httpx as httpx
from specclient.http_transport.clients.adapters import MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS, OwnHttpxAdapter
from specclient.http_transport.clients.aiohttp_adapter import AiohttpAdapter, trusted_certificates
from specclient.http_transport.clients.timeouts import DEFAULT_TIMEOUT_SECONDS
from specclient.runtime.forks import import_lock
from specclient.runtime.masked_urls import mask_url

ClientKind = Literal["aiohttp", "httpx"]
#: Adapters of clients that this package creates and closes.
OwnAdapter = OwnHttpxAdapter | AiohttpAdapter


class LoopClients:
    """The package's own clients, one for each running event loop.

    A client is closed when its event loop ends, or when this object is closed or garbage-collected.

    Args:
        kind: the library that does the I/O: ``aiohttp`` or ``httpx``.
        connections: the maximum number of open connections per event loop; more requests wait.

    Raises:
        ConfigurationError: ``kind`` is neither.
    """

    def __init__(self, kind: ClientKind, connections: int = MAX_CONNECTIONS) -> None:
        if kind not in ("aiohttp", "httpx"):
            raise ConfigurationError(f"the transport kind is {kind!r}; it must be 'aiohttp' or 'httpx'")
        self.kind = kind
        self._connections = connections
        self._clients: dict[asyncio.AbstractEventLoop, _LoopClient] = {}

    def prepare(self) -> None:
        """Import the library that does the I/O."""
        if self.kind == "httpx":
            _ = httpx.AsyncClient
        else:
            importlib.import_module("specclient.http_transport.clients.connector")

    async def adapter(self) -> OwnAdapter:
        """Return the client of the running event loop, created on first use."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [other for other in list(self._clients) if other.is_closed()]:
                if (stale := self._clients.pop(ended, None)) is not None:
                    stale.close_later()
            generator = _closed_with_loop(_new_adapter(self.kind, self._connections))
            adapter = await anext(generator)
            # The finalizer's own reference keeps the client out of reference cycles through this object.
            # Otherwise the garbage collector could find its sockets unclosed before they can be closed.
            client = self._clients[loop] = _LoopClient(
                adapter, generator, weakref.finalize(self, _close_later, loop, generator, adapter)
            )
            # At exit a stream may still run in a thread that outlives this object.
            client.close_later.atexit = False
        return client.adapter

    async def aclose(self) -> None:
        """Close the client of the running event loop. Clients of other loops close with their loops."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            client.close_later.detach()
            await client.generator.aclose()


class _LoopClient(NamedTuple):
    adapter: OwnAdapter
    generator: AsyncGenerator[OwnAdapter]
    close_later: weakref.finalize[
        [asyncio.AbstractEventLoop, AsyncGenerator[OwnAdapter], OwnAdapter], LoopClients
    ]


async def _closed_with_loop(adapter: OwnAdapter) -> AsyncGenerator[OwnAdapter]:
    """Yield a client, and close it inside the event loop that owns its sockets when that loop ends.

    An async generator, because ``loop.shutdown_asyncgens`` (which ``asyncio.run`` calls) finalizes those.
    """
    try:
        yield adapter
    finally:
        await adapter.aclose()


def _close_later(
    loop: asyncio.AbstractEventLoop, generator: AsyncGenerator[OwnAdapter], adapter: OwnAdapter
) -> None:
    """Close an unreachable client, from any thread. Logs nothing if its event loop has been closed."""
    with contextlib.suppress(RuntimeError, StopIteration):  # RuntimeError: the loop has ended meanwhile
        if loop.is_closed():
            adapter.aclose().send(None)  # nothing is left to wait for, so one step completes it
        else:
            loop.call_soon_threadsafe(lambda: loop.create_task(_close(generator)))


async def _close(generator: AsyncGenerator[OwnAdapter]) -> None:
    await generator.aclose()


def _new_adapter(kind: ClientKind, connections: int) -> OwnAdapter:
    def httpx_adapter() -> OwnHttpxAdapter:
        return OwnHttpxAdapter(_new_httpx_client(kind, connections))

    if kind == "httpx":
        return httpx_adapter()
    return AiohttpAdapter(connections, MAX_IDLE_CONNECTIONS, httpx_adapter)


def _new_httpx_client(kind: ClientKind, connections: int) -> httpx.AsyncClient:
    """Return an ``httpx.AsyncClient``. Proxies and certificates come from the environment, as with httpx.

    Raises:
        ConfigurationError: the certificates cannot be read, or a proxy's URL is invalid.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy  # noqa: PLC0415 - imported by httpx anyway

    options: dict[str, Any] = {
        "timeout": httpx.Timeout(**DEFAULT_TIMEOUT_SECONDS.phases()),
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
        "follow_redirects": True,
        "verify": trusted_certificates(),
        # No cookies: copies of a client share it with other keys.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    }
    client: Any = httpx.AsyncClient
    if kind != "httpx":
        with import_lock:
            from specclient.http_transport.clients.httpx_over_aiohttp import (  # noqa: PLC0415 - aiohttp
                HttpxOverAiohttp,
            )

        client = HttpxOverAiohttp
    try:
        own: httpx.AsyncClient = client(**options)
    except (httpx.InvalidURL, ValueError):
        if not urllib.request.getproxies():
            raise
    else:
        return own
    raise _proxy_error()  # outside the block: the library's exception may quote a part of the password


def _proxy_error() -> ConfigurationError:
    """Return the error for a proxy of the environment that httpx refuses."""
    proxies = urllib.request.getproxies()
    named = (name for name in ("http", "https", "all") if name in proxies)
    shown = ", ".join(f"{name}_proxy={mask_url(proxies[name])!r}" for name in named)
    return ConfigurationError(
        f"a proxy of the environment cannot be used ({shown}); write http://HOST:PORT, https:// or "
        "socks5://, and escape special characters of a password (%2F for /)"
    )
