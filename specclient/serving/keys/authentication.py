"""Authentication of requests by the operator's key, a stored key, or their origin.

A server without a key listens on loopback, where web pages in the user's browser can also reach it: with a
form that posts to it, or with a domain name that resolves to loopback (DNS rebinding). Therefore, without a
key, the host of a request must be this machine, and its origin, if any, must be this server.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from specclient.openai_http.errors import ServingError
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.key import StoredKey

#: Headers of the key for clients of Anthropic's and Gemini's APIs.
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")


async def authenticate(
    headers: Mapping[str, str], key: SecretStr | None, keys: KeyCache | None = None
) -> StoredKey | None:
    """Return the stored key of a request; None for the operator's key, or if no key is required.

    Args:
        headers: request headers.
        key: the operator's key; None if there is none.
        keys: the stored keys.

    Raises:
        ServingError: 401 for a missing or wrong key, 403 for a foreign host or origin, 503 if the stored keys
            cannot be read.
    """
    token = _token(headers)
    if key is None and not (keys is not None and await keys.needed()):
        _check_origin(headers)
        return None
    # Compare the bytes as received (headers are decoded as latin-1); the time depends only on their lengths.
    if key is not None and hmac.compare_digest(token.encode("latin-1"), key.get_secret_value().encode()):
        return None
    if keys is not None and token and (found := await keys.find(token)) is not None:
        return found
    reason = (
        "is not a key of this server"
        if token
        else "is missing: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
    )
    raise ServingError(
        401, f"the key {reason}", code="invalid_api_key", headers={"www-authenticate": "Bearer"}
    )


def _token(headers: Mapping[str, str]) -> str:
    """Return the key in the headers, as clients of each API send it; empty without one."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    return next((headers[name].strip() for name in _KEY_HEADERS if name in headers), "")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address."""
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
            f"host {host[:80]!r} is not this machine: a server without a key only serves 127.0.0.1 and "
            f"localhost",
        )
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != host:
        raise ServingError(403, f"pages of {origin[:80]!r} may not use a server without a key")


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
