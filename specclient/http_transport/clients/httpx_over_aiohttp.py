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

    def _init_transport(
        self, *, transport: httpx.AsyncBaseTransport | None = None, **options: Any
    ) -> httpx.AsyncBaseTransport:
        return EndingTransport(**options) if transport is None else transport

    def _init_proxy_transport(self, proxy: httpx.Proxy, **options: Any) -> httpx.AsyncBaseTransport:
        return EndingTransport(proxy=proxy, **options)
