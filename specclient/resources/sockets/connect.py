"""The ``connect`` methods of resources."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from specclient.errors import ConfigurationError
from specclient.resources.signatures import LazySignature
from specclient.resources.table.sockets import SocketRow
from specclient.runtime.forks import import_lock

__all__ = ["connect_method", "socket_managers"]


def connect_method(row: SocketRow) -> Callable[..., Any]:
    """Return the method that a row describes; it returns a context manager and sends nothing yet."""

    def connect(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = row.signature().bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"connect() {error}") from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        return self.caller.connect(row, given)

    vars(connect)["__signature__"] = LazySignature(row.signature)
    connect.__doc__ = (
        f"Open a WebSocket at ``{row.path}``, in a ``with`` block; its events are ``{row.events}``.\n\n"
        "``on_reconnecting`` is called before each attempt to replace a connection that broke off, and may "
        "change or abort it; without it, there are no attempts."
    )
    return connect


def socket_managers() -> ModuleType:
    """Return the module of the context managers, which needs the ``websockets`` library.

    Raises:
        ConfigurationError: the library is not installed.
    """
    with import_lock:
        try:
            importlib.import_module("websockets.asyncio.client")
        except ImportError:
            raise ConfigurationError(
                "WebSockets need the websockets library: pip install 'specclient[realtime]'"
            ) from None
        return importlib.import_module("specclient.resources.sockets.managers")
