"""Time limits of a request, in seconds, read from any form that users pass."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from specclient.errors import ConfigurationError

#: Bytes of a request body that a server must accept in a second, on average.
_SLOWEST_UPLOAD = 64 * 2**10


class AnswerTimeoutError(TimeoutError):
    """An answer was received too slowly, although no single wait exceeded its limit.

    Args:
        what: what the server did not do.
        seconds: the limit that has passed.
    """

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} within {seconds:g} s")
        self.what = what
        self.seconds = seconds


class TimeoutSeconds(NamedTuple):
    """Time limits in seconds. None means no limit.

    Attributes:
        connect, read, write, pool: as in ``httpx.Timeout``; each limits a single wait. ``read`` is the
            longest silence of the server.
        body: the time for a whole body, or for one event of a stream, from its first byte to its last. It
            ends bodies that come byte by byte.
    """

    connect: float | None
    read: float | None
    write: float | None
    pool: float | None
    body: float | None = None

    def phases(self) -> dict[str, float | None]:
        """Return the arguments of ``httpx.Timeout``."""
        return {"connect": self.connect, "read": self.read, "write": self.write, "pool": self.pool}

    def until_headers(self, upload_bytes: int) -> float | None:
        """Return the seconds from the request's start to the end of the response's headers.

        It is the sum of the limits of single waits. A limit for every wait alone would let a server send its
        headers byte by byte for ever.

        Args:
            upload_bytes: the length of the request's body.
        """
        if self.connect is None or self.read is None or self.write is None or self.pool is None:
            return None
        return self.connect + self.read + self.write + self.pool + upload_bytes / _SLOWEST_UPLOAD


DEFAULT_TIMEOUT_SECONDS = TimeoutSeconds(connect=5.0, read=600.0, write=600.0, pool=600.0, body=600.0)
_HTTPX_DEFAULT = (5.0, 5.0, 5.0, 5.0)  # of an httpx client that was created without a timeout


def seconds_of(value: Any) -> TimeoutSeconds:
    """Convert a user's timeout to seconds per phase of a request.

    A number also limits the time for a whole body. A timeout object limits single waits, as in httpx; for a
    whole body the default of 600 s applies, or ``read`` if that is longer.

    Args:
        value: seconds for each of connect, read, write and pool (``math.inf`` for no limit), or a timeout
            object of httpx or httpx2.

    Raises:
        ConfigurationError: ``value`` is neither.
    """
    if isinstance(value, TimeoutSeconds):
        return value
    if all(hasattr(value, phase) for phase in ("connect", "read", "write", "pool")):
        read = value.read
        body = None if read is None else max(read, DEFAULT_TIMEOUT_SECONDS.body or 0.0)
        return TimeoutSeconds(value.connect, read, value.write, value.pool, body)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ConfigurationError(
            f"timeout is {value!r}; it must be seconds, 0 or more (math.inf for none), or an httpx.Timeout"
        )
    return TimeoutSeconds(*[None if math.isinf(value) else value] * 5)


def own_timeout(http_client: Any) -> Any:
    """Return the timeout object of a user's client, or None if it was created without a timeout."""
    timeout = getattr(http_client, "timeout", None)
    return None if timeout is None or seconds_of(timeout)[:4] == _HTTPX_DEFAULT else timeout
