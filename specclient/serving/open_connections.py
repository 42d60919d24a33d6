"""The open connections of a server process, and room for those of running requests.

Each connection takes a file descriptor, and a process may open a limited number of them. A running request
may need a second one, for its connection to the upstream, and the ledger needs some, too. Without room for
these, clients that open connections and send nothing would end the service for all others.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from types import ModuleType
from typing import Protocol

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

__all__ = ["OpenConnections", "max_descriptors", "raise_descriptor_limit"]

logger = logging.getLogger("specclient")

#: Descriptors for everything but connections: the ledger, listening sockets, pipes, modules being imported.
RESERVED = 64


class Connection(Protocol):
    """One client's connection."""

    def make_room(self) -> None:
        """Close the connection, which is idle, in favour of another one."""
        ...


class OpenConnections:
    """Closes the connections that have been idle for the longest time when descriptors run short.

    Args:
        descriptors: number of file descriptors of the process; None if it is not limited.
    """

    def __init__(self, descriptors: int | None) -> None:
        self._descriptors = descriptors
        self._most = None if descriptors is None else max(descriptors - RESERVED, descriptors // 2)
        self._warned = False
        self._busy: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the one that has been idle for the longest time is first

    def set_idle(self, connection: Connection) -> None:
        """Note that a connection is new, or has no running request any more."""
        self._busy.discard(connection)
        self._idle[connection] = None
        self._make_room()

    def set_busy(self, connection: Connection) -> None:
        """Note that a connection has a running request."""
        self._idle.pop(connection, None)
        self._busy.add(connection)
        self._make_room()

    def remove(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        self._busy.discard(connection)
        self._idle.pop(connection, None)

    def _make_room(self) -> None:
        while self._idle and self._most is not None and len(self._idle) + 2 * len(self._busy) > self._most:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.make_room()
            if not self._warned:
                self._warned = True
                logger.warning(
                    "%d connections are open, and this process may have %d files open; connections that have "
                    "been idle for the longest time are closed for new ones. Raise the limit (ulimit -n) if "
                    "this many clients are expected",
                    len(self._idle) + len(self._busy) + 1,
                    self._descriptors,
                )


def max_descriptors() -> int | None:
    """Return the number of file descriptors that this process may have open; None if it is not limited."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else int(soft)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit, which many systems set far higher.

    The common soft limit of 1024 protects programs that use ``select``; this one does not use it. New
    processes inherit the limit.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS reports a hard limit that it does not accept
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
