"""Turn an application and an address into a server on a bound socket."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from specclient.errors import ConfigurationError
from specclient.serving.limits import Limits
from specclient.serving.problems import bad
from specclient.serving.talk import JSON

if TYPE_CHECKING:
    from starlette.applications import Starlette

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound; nothing is answered on it yet.

    Args:
        port: 0 for one that is free.

    Raises:
        ConfigurationError: an address that cannot be used, with the way out.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigurationError(f"host {host!r} is no address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigurationError(_refused(host, port, error)) from None
    return sock


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use; stop what uses it, or name another (--port 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used: {error.strerror}; name one above 1023"
    return f"{host}:{port} cannot be listened on: {error.strerror or error}"


def make_server(app: Starlette, limits: Limits | None = None) -> uvicorn.Server:
    """Return what serves an application: ``run(sockets=[bind(…)])``, until a signal or ``should_exit``.

    It stops in order: connections without a request are closed at once, running requests have
    ``limits.grace_s`` to end, then they are told that the server stops.
    """
    limits = limits or Limits()
    return uvicorn.Server(uvicorn.Config(app, http=patient(limits.head_s), **options_of(limits)))


def options_of(limits: Limits) -> dict[str, Any]:
    """Return uvicorn's options, all but the protocol: see :func:`patient`."""
    return {
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": limits.idle_s,
        "timeout_graceful_shutdown": limits.grace_s,
    }


def _not_http(message: str) -> bytes:
    """Return the answer to what is not a request of HTTP/1.1."""
    body = bad(None, message, "invalid_http").body()
    lines = (
        "HTTP/1.1 400 Bad Request",
        f"content-type: {JSON}",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def patient(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, which waits for a head without end, with an end to that."""
    base: Any = AutoHTTPProtocol

    class Patient(base):  # type: ignore[misc]
        """Closes a connection whose head does not arrive in time, and says in JSON what is no HTTP."""

        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()
            elif self._head_timer is None:
                self._await_head()

        def send_400_response(self, msg: str) -> None:
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self.transport.write(_not_http(msg))
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

        def _forget(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Patient
