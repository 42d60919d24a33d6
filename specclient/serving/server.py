"""The HTTP server: binding of a socket, and uvicorn with the options of this project."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from specclient.errors import ConfigurationError
from specclient.serving.connection import limited_protocol
from specclient.serving.limits import Limits
from specclient.serving.sockets.protocol import socket_options

if TYPE_CHECKING:
    from starlette.applications import Starlette

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a bound and listening socket.

    Args:
        host: name or address of this machine.
        port: 0 chooses a free port.

    Raises:
        ConfigurationError: the address cannot be used; the message says what to do.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigurationError(f"host {host!r} is not an address of this machine: {error}") from None
    family, kind, protocol, _, address = addresses[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigurationError(_bind_error(host, port, error)) from None
    return sock


def _bind_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use; stop the process that uses it, or choose another "
            "(--port 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"no permission to use port {port} of {host}: {error.strerror}; choose one above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"


def make_server(app: Starlette, limits: Limits | None = None) -> uvicorn.Server:
    """Return a server; ``run(sockets=[bind(…)])`` serves until a signal or ``should_exit``.

    At shutdown, idle connections are closed at once. Running requests have ``limits.grace_s`` seconds to
    end; then they get an error.
    """
    limits = limits or Limits()
    return uvicorn.Server(uvicorn.Config(app, http=limited_protocol(limits), **uvicorn_options(limits)))


def uvicorn_options(limits: Limits) -> dict[str, Any]:
    """Return uvicorn's options, except the protocol.

    See :func:`specclient.serving.connection.limited_protocol` for the protocol.
    """
    return {
        **socket_options(limits),
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": limits.idle_s,
        "timeout_graceful_shutdown": limits.grace_s,
    }
