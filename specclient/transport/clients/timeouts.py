"""Time limits of a request, in seconds, read from any form that users pass."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from specclient.errors import ConfigurationError


class TimeoutSeconds(NamedTuple):
    """Time limits in seconds, with the fields of ``httpx.Timeout``. None means no limit."""

    connect: float | None
    read: float | None
    write: float | None
    pool: float | None


DEFAULT_TIMEOUT_SECONDS = TimeoutSeconds(connect=5.0, read=600.0, write=600.0, pool=600.0)
_HTTPX_DEFAULT = TimeoutSeconds(5.0, 5.0, 5.0, 5.0)  # of an httpx client that was created without a timeout


def seconds_of(value: Any) -> TimeoutSeconds:
    """Convert a user's timeout to seconds per phase of a request.

    Args:
        value: seconds for each of connect, read, write and pool (``math.inf`` for no limit), or a timeout
            object of httpx or httpx2.

    Raises:
        ConfigurationError: ``value`` is neither.
    """
    if isinstance(value, TimeoutSeconds):
        return value
    if all(hasattr(value, phase) for phase in TimeoutSeconds._fields):
        return TimeoutSeconds(*(getattr(value, phase) for phase in TimeoutSeconds._fields))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ConfigurationError(
            f"timeout is {value!r}; it must be seconds, 0 or more (math.inf for none), or an httpx.Timeout"
        )
    return TimeoutSeconds(*[None if math.isinf(value) else value] * len(TimeoutSeconds._fields))


def own_timeout(http_client: Any) -> Any:
    """Return the timeout object of a user's client, or None if it was created without a timeout."""
    timeout = getattr(http_client, "timeout", _HTTPX_DEFAULT)
    return None if seconds_of(timeout) == _HTTPX_DEFAULT else timeout
