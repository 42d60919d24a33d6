"""Whether a server answers: its health, its models, and whether it refuses requests without the key."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass

_TIMEOUT_S = 5.0
_MOST_BYTES = 2**20
_NO_HEALTH_PAGE = (401, 403, 404, 405, 501)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer of a server: status, and body up to a mebibyte."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Readiness:
    """The facts that a server tells when it answers.

    Attributes:
        models: the names of its models.
        keyed: whether it refuses requests without the key.
    """

    models: Sequence[str]
    keyed: bool


def probe(port: int, key: str) -> Readiness | None:
    """Return what a server tells if it is ready, else None.

    It is ready if ``/health`` answers with status 200, or does not exist, and ``/v1/models`` with the key
    answers with status 200. Servers answer the first with 503 while they load the model.

    Args:
        port: the server's port on this machine.
        key: its API key.
    """
    health = get(port, "/health", key)
    if health is None or not (health.status == 200 or health.status in _NO_HEALTH_PAGE):
        return None
    listed = get(port, "/v1/models", key)
    if listed is None or listed.status != 200:
        return None
    without = get(port, "/v1/models", "")
    return Readiness(_names(listed.body), without is not None and without.status in (401, 403))


def get(port: int, path: str, key: str) -> PageAnswer | None:
    """Return the answer to a request; None without a complete one. Proxies are not used."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return PageAnswer(response.status, response.read(_MOST_BYTES))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _names(body: bytes) -> list[str]:
    try:
        rows = json.loads(body)["data"]
        return [row["id"] for row in rows if isinstance(row["id"], str)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def served_name(wanted: str, models: Sequence[str]) -> str | None:
    """Return the model's name in requests; None if it must be configured.

    Args:
        wanted: the configured name, which is used even if the server does not list it; empty for the only
            one that the server lists.
        models: the names that the server lists.
    """
    if wanted:
        return wanted
    return models[0] if len(models) == 1 else None
