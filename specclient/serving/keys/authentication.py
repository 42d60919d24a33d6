"""Turn a request's headers into whose it is: a key's, the operator's, or that of this machine's own user.

A server without a key listens on loopback, where a web page in the user's browser can reach it, too: by a
form that posts to it, or by a name of its own that it lets point here. So without a key, a request must name
this machine as its host, and a browser's must come from a page that was served here.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from specclient.serving.errors import ServingError
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import StoredKey


async def authenticate(
    headers: Mapping[str, str], key: SecretStr | None, ring: KeyCache | None = None
) -> StoredKey | None:
    """Return the stored key that a request brings; None for the operator's own, and where none is needed.

    Args:
        key: the operator's; None where there is none.
        ring: the stored ones.

    Raises:
        ProblemError: 401 without a right key, 403 for a foreign page, 503 where keys cannot be read.
    """
    scheme, _, given = headers.get("authorization", "").partition(" ")
    brought = given.strip() if scheme.lower() == "bearer" else ""
    if key is None and not (ring is not None and await ring.needed()):
        _check_origin(headers)
        return None
    # Compared as the bytes that came (headers are read as latin-1), whose lengths alone the time may tell.
    if key is not None and hmac.compare_digest(brought.encode("latin-1"), key.get_secret_value().encode()):
        return None
    if ring is not None and brought and (found := await ring.find(brought)) is not None:
        return found
    reason = "is none of this server's" if brought else "is missing: send 'Authorization: Bearer KEY'"
    raise ServingError(
        401, f"the key {reason}", code="invalid_api_key", headers={"www-authenticate": "Bearer"}
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host's name or address is this machine's own, reached from nowhere else."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _check_origin(headers: Mapping[str, str]) -> None:
    host = headers.get("host", "")
    if host and not is_loopback(_name(host)):
        raise ServingError(
            403,
            f"host {host[:80]!r} is not this machine: a server without a key serves 127.0.0.1 and localhost",
        )
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != host:
        raise ServingError(403, f"a page of {origin[:80]!r} may not use a server that asks for no key")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
