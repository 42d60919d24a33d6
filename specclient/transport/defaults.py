"""HTTP clients of the user's own that start from this package's defaults, to be changed and handed in."""

from __future__ import annotations

from typing import Any

from specclient.transport.clients import DEFAULT_CONNECTION_LIMITS, DEFAULT_TIMEOUT
from specclient.transport.vendor import httpx


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "timeout": DEFAULT_TIMEOUT,
        "limits": DEFAULT_CONNECTION_LIMITS,
        "follow_redirects": True,
        **options,
    }


class DefaultHttpxClient(httpx.Client):
    """An ``httpx.Client`` with this package's time limits and connection limits where none are given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**_with_defaults(options))


class DefaultAsyncHttpxClient(httpx.AsyncClient):
    """An ``httpx.AsyncClient`` with this package's time limits and connection limits where none are given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**_with_defaults(options))


def DefaultAioHttpClient(**options: Any) -> httpx.AsyncClient:  # noqa: N802 - the name users know
    """Return an ``httpx.AsyncClient`` over aiohttp's sockets: what a client of ours uses by itself."""
    from httpx_aiohttp import HttpxAiohttpClient  # noqa: PLC0415  aiohttp takes 0.1 s to import

    return HttpxAiohttpClient(**_with_defaults(options))
