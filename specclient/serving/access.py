"""Turn a request's headers into whether it may be served: by its key, or as one of this machine's own.

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

from specclient.serving.problems import ProblemError


def check_access(headers: Mapping[str, str], key: SecretStr | None) -> None:
    """Raise ProblemError for who may not be served: 401 without the right key, 403 for a foreign page."""
    if key is None:
        _check_origin(headers)
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    brought = given.strip() if scheme.lower() == "bearer" else ""
    # Compared as the bytes that came (headers are read as latin-1), whose lengths alone the time may tell.
    if not hmac.compare_digest(brought.encode("latin-1"), key.get_secret_value().encode()):
        reason = (
            "is not the one of this server" if brought else "is missing: send 'Authorization: Bearer KEY'"
        )
        raise ProblemError(
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
        raise ProblemError(
            403,
            f"host {host[:80]!r} is not this machine: a server without a key serves 127.0.0.1 and localhost",
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise ProblemError(403, f"a page of {origin[:80]!r} may not use a server that asks for no key")


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
