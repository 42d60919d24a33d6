"""Reconnection of WebSockets: the event before an attempt, the answer to it, and the codes that allow one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

Query = Mapping[str, Any]
Headers = Mapping[str, Any]

__all__ = ["Headers", "Query", "ReconnectingEvent", "ReconnectingOverrides", "is_recoverable_close"]

#: Close codes after which a new connection may succeed (RFC 6455, section 7.4.1, and IANA's registry): going
#: away, no code, abnormal closure, server error, restart, try again later, failed TLS handshake.
_RECOVERABLE = frozenset({1001, 1005, 1006, 1011, 1012, 1013, 1015})


@dataclass(frozen=True)
class ReconnectingEvent:
    """An attempt to reconnect that is about to be made.

    Attributes:
        attempt: the number of the attempt, from 1.
        max_attempts: the number of attempts that are made at most.
        delay: seconds before the attempt.
        close_code: the code with which the last connection was closed; 1006 if it broke off.
        extra_query, extra_headers: those of the last connection.
    """

    attempt: int
    max_attempts: int
    delay: float
    close_code: int
    extra_query: Query = field(repr=False)  # may hold keys
    extra_headers: Headers = field(repr=False)


class ReconnectingOverrides(TypedDict, total=False):
    """The changes of a reconnection handler: query and headers of the next attempt, or ``abort`` for none."""

    extra_query: Query
    extra_headers: Headers
    abort: bool


def is_recoverable_close(code: int) -> bool:
    """Return whether a connection that was closed with this code is worth another attempt."""
    return code in _RECOVERABLE
