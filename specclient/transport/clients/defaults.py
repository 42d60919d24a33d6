"""What users take from httpx: this package's defaults, and clients that start from them, to be handed in."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, TypeAlias

from specclient.errors import ConfigurationError
from specclient.transport.clients.adapters import (
    DEFAULT_TIMEOUT_SECONDS,
    MAX_CONNECTIONS,
    MAX_IDLE_CONNECTIONS,
)
from specclient.transport.vendor import httpx

Timeout = httpx.Timeout
URL = httpx.URL
DEFAULT_TIMEOUT = httpx.Timeout(**DEFAULT_TIMEOUT_SECONDS._asdict())
DEFAULT_CONNECTION_LIMITS = httpx.Limits(
    max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS
)
Transport = httpx.BaseTransport
ProxiesTypes: TypeAlias = "str | httpx.Proxy | dict[str, str | httpx.URL | httpx.Proxy | None]"


def _with_defaults(options: dict[str, Any], vendor: ModuleType = httpx) -> dict[str, Any]:
    limits = DEFAULT_CONNECTION_LIMITS
    return {
        "timeout": vendor.Timeout(**DEFAULT_TIMEOUT.as_dict()),
        "limits": vendor.Limits(
            max_connections=limits.max_connections, max_keepalive_connections=limits.max_keepalive_connections
        ),
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


def DefaultHttpx2Client(**options: Any) -> Any:  # noqa: N802 - the name users know
    """Return an ``httpx2.Client`` with the same defaults; raises as :func:`_httpx2`."""
    return _httpx2().Client(**_with_defaults(options, _httpx2()))


def DefaultAsyncHttpx2Client(**options: Any) -> Any:  # noqa: N802 - the name users know
    """Return an ``httpx2.AsyncClient`` with the same defaults; raises as :func:`_httpx2`."""
    return _httpx2().AsyncClient(**_with_defaults(options, _httpx2()))


def _httpx2() -> ModuleType:
    """Return the library.

    Raises:
        ConfigurationError: where it is not installed: this package itself does not need it.
    """
    try:
        return importlib.import_module("httpx2")
    except ModuleNotFoundError:
        raise ConfigurationError("httpx2 is not installed; install it, or use DefaultHttpxClient") from None
