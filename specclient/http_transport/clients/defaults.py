"""The names of httpx that users import from this package, and clients with this package's defaults."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, TypeAlias

import httpx

from specclient.errors import ConfigurationError
from specclient.http_transport.clients.adapters import MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS
from specclient.http_transport.clients.timeouts import DEFAULT_TIMEOUT_SECONDS

Timeout = httpx.Timeout
URL = httpx.URL
DEFAULT_TIMEOUT = httpx.Timeout(**DEFAULT_TIMEOUT_SECONDS.phases())
DEFAULT_CONNECTION_LIMITS = httpx.Limits(
    max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS
)
Transport = httpx.BaseTransport
ProxiesTypes: TypeAlias = "str | httpx.Proxy | dict[str, str | httpx.URL | httpx.Proxy | None]"


def _with_defaults(options: dict[str, Any], library: ModuleType = httpx) -> dict[str, Any]:
    limits = DEFAULT_CONNECTION_LIMITS
    return {
        "timeout": library.Timeout(**DEFAULT_TIMEOUT.as_dict()),
        "limits": library.Limits(
            max_connections=limits.max_connections, max_keepalive_connections=limits.max_keepalive_connections
        ),
        "follow_redirects": True,
        **options,
    }


class DefaultHttpxClient(httpx.Client):
    """An ``httpx.Client`` with this package's default time limits and connection limits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**_with_defaults(options))


class DefaultAsyncHttpxClient(httpx.AsyncClient):
    """An ``httpx.AsyncClient`` with this package's default time limits and connection limits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**_with_defaults(options))


def DefaultAioHttpClient(**options: Any) -> httpx.AsyncClient:  # noqa: N802 - the name users know
    """Return an ``httpx.AsyncClient`` that uses aiohttp for its I/O, with this package's defaults."""
    from specclient.http_transport.clients.httpx_over_aiohttp import HttpxOverAiohttp  # noqa: PLC0415 - aiohttp

    return HttpxOverAiohttp(**_with_defaults(options))


def DefaultHttpx2Client(**options: Any) -> Any:  # noqa: N802 - the name users know
    """Return an ``httpx2.Client`` with this package's defaults.

    Raises:
        ConfigurationError: httpx2 is not installed.
    """
    return _httpx2().Client(**_with_defaults(options, _httpx2()))


def DefaultAsyncHttpx2Client(**options: Any) -> Any:  # noqa: N802 - the name users know
    """Return an ``httpx2.AsyncClient`` with this package's defaults.

    Raises:
        ConfigurationError: httpx2 is not installed.
    """
    return _httpx2().AsyncClient(**_with_defaults(options, _httpx2()))


def _httpx2() -> ModuleType:
    try:
        return importlib.import_module("httpx2")
    except ModuleNotFoundError:  # this package itself does not need it
        raise ConfigurationError("httpx2 is not installed; install it, or use DefaultHttpxClient") from None
