"""The WebSocket methods of the installed `openai` package, read by opening connections that send nothing.

Every ``connect`` method is called with a marker as each argument while the function that opens a WebSocket is
replaced; the place of a marker in the URL is the place of the argument. The methods of the connection are
called in the same way, and the message that each would send is recorded. No source code is read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, unquote, urlsplit

from openai_sync.endpoints import Witness, aliases_of, mark
from openai_sync.names import Catalogue

Socket = dict[str, Any]

#: Arguments of every ``connect``; all others are parameters of the API.
_EVERY_CONNECT = frozenset(
    {
        "extra_headers", "extra_query", "initial_delay", "max_delay", "max_queue_size", "max_retries",
        "on_reconnecting", "websocket_connection_options",
    }
)  # fmt: skip
_BASE = "http://nowhere.invalid"


class _Handshake(BaseException):
    """Carries the URL and the headers of a connection out of the method that would open it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url, self.headers = url, headers


class _Wire:
    """A connection that keeps the last message instead of sending it."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}

    def send(self, data: str) -> None:
        """Keep a message."""
        self.message = json.loads(data)


def sockets(catalogue: Catalogue) -> dict[str, Socket]:
    """Return the WebSocket methods by their path on a client."""
    client = Witness(api_key="key", base_url=_BASE)
    common = frozenset(name.lower() for name in (*client.default_headers, *client.auth_headers))
    return {
        f"{name}.connect": _socket(resource.connect, catalogue, common)
        for name, resource in sorted(_resources(client, ""))
        if hasattr(type(resource), "connect")
    }


def _resources(holder: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all resources of a client, or below a resource, by their path on the client."""
    for name in sorted(dir(type(holder))):
        static = inspect.getattr_static(type(holder), name)
        if name.startswith(("_", "with_")) or not isinstance(static, functools.cached_property):
            continue
        child = getattr(holder, name)
        root = (path or name).partition(".")[0]
        if type(child).__module__.startswith(f"openai.resources.{root}"):
            place = f"{path}.{name}".lstrip(".")
            yield place, child
            yield from _resources(child, place)


def _socket(connect: Callable[..., Any], catalogue: Catalogue, common: frozenset[str]) -> Socket:
    """Return the row of one ``connect`` method, without empty values."""
    parameters = inspect.signature(connect).parameters
    names = [name for name in parameters if name not in _EVERY_CONNECT]
    manager = connect(**{name: mark(name) for name in names})
    handshake = _handshake_of(manager)
    parts = urlsplit(handshake.url)
    query = {value: name for name, value in parse_qsl(parts.query)}
    in_query = [name for name in names if mark(name) in query]
    path = unquote(parts.path)
    for name in names:
        if name not in in_query and mark(name) not in path:
            raise RuntimeError(f"connect() did not send {name}")
        path = path.replace(mark(name), f"{{{name}}}")
    connection = typing.get_type_hints(type(manager).__enter__)["return"]
    queue = parameters.get("max_queue_size")
    if aliases := aliases_of(_hints(connection.send)["event"], set()):
        raise RuntimeError(f"messages send {sorted(aliases)} under other names, which the table cannot state")
    row: Socket = {
        "path": path,
        "params": " ".join(
            name + "!" * (parameters[name].default is inspect.Parameter.empty) for name in names
        ),
        "keywords": all(one.kind is one.KEYWORD_ONLY for one in parameters.values()),
        "queue_bytes": 0 if queue is None else queue.default,
        "headers": {k: v for k, v in handshake.headers.items() if k.lower() not in common},
        "events": catalogue.path_of(_hints(connection.recv)["return"]),
        "sends": _sends(connection),
    }
    return {name: value for name, value in row.items() if value}


def _handshake_of(manager: Any) -> _Handshake:
    """Return the handshake that a connection manager would send."""

    def opened(url: str, *, additional_headers: Mapping[str, str], **_options: Any) -> Any:
        raise _Handshake(url, additional_headers)

    with mock.patch.object(importlib.import_module("websockets.sync.client"), "connect", opened):
        try:
            manager.enter()
        except _Handshake as handshake:
            return handshake
    raise RuntimeError(f"{type(manager).__name__} opened no connection")


def _sends(connection_class: Any) -> dict[str, str]:
    """Return the messages that methods of a connection send, by the method's path on the connection.

    Each is the message's type, then its fields in the order in which they are sent, required ones with a
    ``!``.
    """
    wire = _Wire()
    connection = connection_class(wire)
    found: dict[str, str] = {}
    for name, resource in sorted(vars(connection).items()):
        if not name.startswith("_") and type(resource).__module__ == connection_class.__module__:
            for path, method in _methods(resource, name):
                found[path] = _message(path, method, wire)
    return found


def _methods(resource: Any, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(dir(type(resource))):
        static = inspect.getattr_static(type(resource), name)
        if name.startswith("_"):
            continue
        if isinstance(static, functools.cached_property):
            yield from _methods(getattr(resource, name), f"{path}.{name}")
        elif inspect.isfunction(static):
            yield f"{path}.{name}", getattr(resource, name)


def _message(path: str, method: Callable[..., Any], wire: _Wire) -> str:
    parameters = inspect.signature(method).parameters
    if any(one.kind is not one.KEYWORD_ONLY for one in parameters.values()):
        raise RuntimeError(f"{path}() takes positional arguments, which the table cannot state")
    method(**{name: mark(name) for name in parameters})
    kind, *fields = wire.message
    if kind != "type" or set(fields) != set(parameters):
        raise RuntimeError(f"{path}() does not send its arguments as fields of the same names")
    required = [name + "!" * (parameters[name].default is inspect.Parameter.empty) for name in fields]
    return " ".join([wire.message["type"], *required])


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters and of its result, annotations included."""
    return typing.get_type_hints(function, include_extras=True)
