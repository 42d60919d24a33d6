"""httpx's client over aiohttp (httpx-aiohttp), whose bodies with invalid framing end.

Imported only when it is used, as aiohttp takes 0.1 s to import.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
from aiohttp import ClientSession
from httpx_aiohttp import AiohttpTransport, HttpxAiohttpClient

from specclient.http_transport.clients.connector import Protocol

__all__ = ["HttpxOverAiohttp"]


class EndingTransport(AiohttpTransport):
    """httpx-aiohttp's transport over connections of :class:`Protocol`."""

    def get_client(self) -> ClientSession:
        """Return the session; aiohttp's own connections would let the reader of an invalid body wait."""
        session = super().get_client()
        connector: Any = session.connector
        if connector is not None and connector._factory.func is not Protocol:
            connector._factory = partial(Protocol, loop=connector._loop)
        return session


class HttpxOverAiohttp(HttpxAiohttpClient):
    """``httpx.AsyncClient`` with aiohttp's I/O; arguments are those of ``httpx.AsyncClient``."""

    def _init_transport(self, *args: Any, **options: Any) -> httpx.AsyncBaseTransport:
        return _ending(super()._init_transport(*args, **options))

    def _init_proxy_transport(self, *args: Any, **options: Any) -> httpx.AsyncBaseTransport:
        return _ending(super()._init_proxy_transport(*args, **options))


def _ending(transport: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
    """Return a transport whose bodies end; a transport of the caller is used as it is."""
    if type(transport) is not AiohttpTransport:
        return transport
    return EndingTransport(verify=transport.ssl_context, limits=transport.limits, proxy=transport.proxy)
