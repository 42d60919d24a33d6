"""Turn an HTTP client, ours or the user's, sync or async, into one small async interface."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Literal, Protocol

import anyio
import anyio.to_thread
import httpx

from specclient.errors import ConfigurationError
from specclient.types.wire import WireRequest

Kind = Literal["aiohttp", "httpx"]
Timeout = httpx.Timeout
DEFAULT_TIMEOUT = httpx.Timeout(600.0, connect=5.0)
_LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
_UNTOUCHED = httpx.Timeout(5.0)  # what httpx gives a client whose maker named no timeout
_PARTS = ("connect", "read", "write", "pool")


class Link(Protocol):
    """A client as the transport drives it. ``vendor`` is the library it belongs to (httpx or httpx2)."""

    vendor: ModuleType

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: Any, *, stream: bool
    ) -> Any:
        """Send; return the library's response: read whole, or at its headers with ``stream``."""
        ...

    async def read(self, response: Any) -> bytes:
        """Read what is left of a streamed response."""
        ...

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        """Iterate over a streamed response's body, decompressed, as it arrives."""
        ...

    async def close(self, response: Any) -> None:
        """Give the connection back, or drop it where the body was not read to its end."""
        ...


class AsyncLink:
    """An ``AsyncClient``."""

    def __init__(self, client: Any, vendor: ModuleType = httpx) -> None:
        self.client = client
        self.vendor = vendor

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: Any, *, stream: bool
    ) -> Any:
        return await self.client.send(_build(self.client, request, headers, limits), stream=stream)

    async def read(self, response: Any) -> bytes:
        content: bytes = await response.aread()
        return content

    def chunks(self, response: Any) -> AsyncIterator[bytes]:
        if "content-encoding" in response.headers or response.is_stream_consumed:  # or read by a user's hook
            return aiter(response.aiter_bytes())
        return aiter(response.stream)  # half the CPU of aiter_bytes, which would have nothing to decode

    async def close(self, response: Any) -> None:
        await response.aclose()


class ThreadLink:
    """A sync ``Client``; each blocking step runs in a worker thread."""

    def __init__(self, client: Any, vendor: ModuleType = httpx) -> None:
        self.client = client
        self.vendor = vendor

    async def open(
        self, request: WireRequest, headers: Mapping[str, str], limits: Any, *, stream: bool
    ) -> Any:
        built = _build(self.client, request, headers, limits)
        return await _in_thread(
            partial(self.client.send, built, stream=stream), late=lambda reply: reply.close()
        )

    async def read(self, response: Any) -> bytes:
        content: bytes = await _in_thread(response.read, late=lambda _: response.close())
        return content

    async def chunks(self, response: Any) -> AsyncIterator[bytes]:
        pieces: Iterator[bytes] = response.iter_bytes()
        step = partial(next, pieces, None)
        while (piece := await _in_thread(step, late=lambda _: response.close())) is not None:
            yield piece

    async def close(self, response: Any) -> None:
        await anyio.to_thread.run_sync(response.close, abandon_on_cancel=True)


async def _in_thread(step: Callable[[], Any], late: Callable[[Any], None]) -> Any:
    """Run a blocking step; a cancelled caller leaves at once, and ``late`` tidies up when the step ends."""
    abandoned = False

    def run() -> Any:
        result = step()
        if abandoned:
            with contextlib.suppress(Exception):
                late(result)
        return result

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        abandoned = True
        raise


def _build(client: Any, request: WireRequest, headers: Mapping[str, str], limits: Any) -> Any:
    return client.build_request(
        request.method, request.url, headers=headers, content=request.content, timeout=limits
    )


def link_of(http_client: Any) -> AsyncLink | ThreadLink:
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
    return (AsyncLink if inspect.iscoroutinefunction(http_client.send) else ThreadLink)(http_client, vendor)


def timeout_of(value: Any, vendor: ModuleType = httpx) -> Any:
    """Return ``value`` as the timeout object of ``vendor``.

    Args:
        value: seconds for each of connect, read, write and pool (``math.inf`` for none), or a timeout object.

    Raises:
        ConfigurationError: for any other value.
    """
    if isinstance(value, vendor.Timeout):
        return value
    if all(hasattr(value, part) for part in _PARTS):
        return vendor.Timeout(**{part: getattr(value, part) for part in _PARTS})
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ConfigurationError(
            f"timeout is {value!r}; it must be seconds, 0 or more (math.inf for none), or an httpx.Timeout"
        )
    return vendor.Timeout(None if math.isinf(value) else value)


def default_timeout(http_client: Any) -> Any:
    """Return a user's client's own timeout where one was set on it, else 600 s with 5 s to connect."""
    own = getattr(http_client, "timeout", _UNTOUCHED)
    touched = any(getattr(own, part) != getattr(_UNTOUCHED, part) for part in _PARTS)
    return own if touched else DEFAULT_TIMEOUT


class LoopClients:
    """Our own clients, one for each running event loop, each closed with its loop.

    Args:
        kind: ``aiohttp`` for httpx over aiohttp's sockets, ``httpx`` for httpx's own.

    Raises:
        ConfigurationError: for another kind.
    """

    def __init__(self, kind: Kind) -> None:
        if kind not in ("aiohttp", "httpx"):
            raise ConfigurationError(f"the transport kind is {kind!r}; it must be 'aiohttp' or 'httpx'")
        self.kind = kind
        self._held: dict[asyncio.AbstractEventLoop, tuple[AsyncLink, AsyncGenerator[AsyncLink]]] = {}

    async def link(self) -> AsyncLink:
        """Return the client of the running loop, built on first use."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            for other in [other for other in self._held if other.is_closed()]:
                self._held.pop(other, None)
            # An async generator, because its loop finalises it (``loop.shutdown_asyncgens``) on its way out:
            # the client is closed inside the loop that owns its sockets, and nothing is left to warn about.
            keeper = self._keep(loop, AsyncLink(new_client(self.kind)))
            held = self._held[loop] = (await anext(keeper), keeper)
        return held[0]

    async def aclose(self) -> None:
        """Close the running loop's client; those of other loops close with their loops."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await held[1].aclose()

    async def _keep(self, loop: asyncio.AbstractEventLoop, link: AsyncLink) -> AsyncGenerator[AsyncLink]:
        try:
            yield link
        finally:
            self._held.pop(loop, None)
            await link.client.aclose()


def new_client(kind: Kind) -> httpx.AsyncClient:
    """Return an async client; proxies and certificates come from the environment, as with httpx."""
    if kind == "httpx":
        return httpx.AsyncClient(timeout=DEFAULT_TIMEOUT, limits=_LIMITS, follow_redirects=True)
    from httpx_aiohttp import HttpxAiohttpClient  # noqa: PLC0415  aiohttp takes 0.1 s to import

    return HttpxAiohttpClient(timeout=DEFAULT_TIMEOUT, limits=_LIMITS, follow_redirects=True)
