"""Turn an application and an address into a server on a bound socket."""

from __future__ import annotations

import errno
import gc
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from specclient.errors import ConfigurationError
from specclient.serving.connection import limited_protocol
from specclient.serving.limits import Limits

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
    return uvicorn.Server(uvicorn.Config(app, http=limited_protocol(limits), **options_of(limits)))


def freeze_garbage() -> None:
    """Have garbage collections pass over what there is by now, which lives as long as the process.

    Modules and the application are some hundred thousand objects. To look at them all takes 0.1 s in which
    nobody is answered, again and again: a tenth of the server's time. For a process that does nothing else.
    """
    gc.freeze()


def options_of(limits: Limits) -> dict[str, Any]:
    """Return uvicorn's options, all but the protocol: see
    :func:`specclient.serving.connection.limited_protocol`."""
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
