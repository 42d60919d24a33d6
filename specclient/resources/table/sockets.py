"""Rows of the WebSocket methods, read from the generated table."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from specclient.openai_api.sockets import SOCKETS
from specclient.types.params import omit

_PLACE = re.compile(r"\{(\w+)\}")
#: Event types that replace those of the generated table. The events of the Responses API over WebSockets are
#: those of its streams with one more field, so they are the declared types of streams.
_EVENTS: Final[Mapping[str, str]] = {"responses.connect": "responses.ResponseStreamEvent"}
#: Keyword arguments of every ``connect`` that reconnects, after those of every connection.
_EVERY: Final[Mapping[str, Any]] = {
    "extra_query": {},
    "extra_headers": {},
    "websocket_connection_options": {},
}
_RECONNECTING: Final[Mapping[str, Any]] = {
    "on_reconnecting": None,
    "max_retries": 5,
    "initial_delay": 0.5,
    "max_delay": 8.0,
}
#: Our own keyword arguments, as those of other calls: see ``CallOptions``.
_OURS: Final[Mapping[str, Any]] = {"tags": None, "session": None}


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that a method of a connection sends.

    Attributes:
        kind: its ``type``.
        fields: its other fields, which are the method's arguments, in order.
        required: those that must be given.
    """

    kind: str
    fields: tuple[str, ...]
    required: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SocketRow:
    """One ``connect`` method.

    Attributes:
        name: the method's path on a client: ``realtime.connect``.
        path: of the WebSocket; the path's placeholders are arguments.
        params: the arguments of the API, in order; those without a placeholder are sent in the query.
        required: the names in ``params`` that must be given.
        keywords: whether all arguments are keyword-only.
        queue_bytes: the default of ``max_queue_size``; 0 if the connection does not reconnect.
        headers: fixed headers of the handshake.
        events: the name of the type of the server's events.
        sends: the messages that methods of the connection send, by the method's path on the connection.
    """

    name: str
    path: str
    params: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    keywords: bool = False
    queue_bytes: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    events: str = ""
    sends: Mapping[str, SentMessage] = field(default_factory=dict)

    @property
    def places(self) -> tuple[str, ...]:
        """The placeholders of the path, in order."""
        return tuple(_PLACE.findall(self.path))

    @functools.cache  # noqa: B019 - rows live as long as the process
    def signature(self) -> inspect.Signature:
        """Return the signature of the ``connect`` method."""
        kind = inspect.Parameter.KEYWORD_ONLY if self.keywords else inspect.Parameter.POSITIONAL_OR_KEYWORD
        empty = inspect.Parameter.empty
        defaults: dict[str, Any] = {name: empty if name in self.required else omit for name in self.params}
        defaults |= _EVERY
        if self.queue_bytes:
            defaults |= {**_RECONNECTING, "max_queue_size": self.queue_bytes}
        given = [inspect.Parameter(name, kind, default=value) for name, value in defaults.items()]
        ours = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=v) for name, v in _OURS.items()
        ]
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return inspect.Signature([first, *given, *ours])


def socket_of(resource: str) -> SocketRow | None:
    """Return the WebSocket method of a resource; None without one."""
    return _rows().get(resource)


def socket_resources() -> frozenset[str]:
    """Return the names of the resources with a WebSocket method."""
    return frozenset(_rows())


@functools.cache
def _rows() -> Mapping[str, SocketRow]:
    return {name.rpartition(".")[0]: _row(name, fields) for name, fields in SOCKETS.items()}


def _row(name: str, fields: Mapping[str, Any]) -> SocketRow:
    params, required = _names(fields.get("params", "").split())
    return SocketRow(
        name=name,
        path=fields["path"],
        params=params,
        required=required,
        keywords=fields.get("keywords", False),
        queue_bytes=fields.get("queue_bytes", 0),
        headers=fields.get("headers", {}),
        events=_EVENTS.get(name, fields["events"]),
        sends={path: _message(text) for path, text in fields["sends"].items()},
    )


def _message(text: str) -> SentMessage:
    kind, *names = text.split()
    return SentMessage(kind, *_names(names))


def _names(marked: list[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return names without their marks, and those with a ``!``."""
    return tuple(name.rstrip("!") for name in marked), frozenset(n[:-1] for n in marked if n.endswith("!"))
