"""URLs for messages and logs, without passwords and keys."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

__all__ = ["mask_url", "mask_url_passwords", "masked_reason"]

_MASK = "***"
_BEFORE_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/*")  # also of "scheme:/user:password@host"
_SECRET_OPTION = re.compile(r"pass|pwd|secret|token|key|auth|credential", re.IGNORECASE)


def mask_url(url: str) -> str:
    """Return a URL without user name, password, query and fragment, any of which may hold a secret.

    ``https://user:password@host/v1?key=k`` becomes ``https://***@host/v1?…``. A text that is no valid URL is
    masked, too: a password with an unescaped ``/``, ``?`` or ``#`` ends at the last ``@``.
    """
    before, userinfo, rest = _split(url)
    shown = before + (f"{_MASK}@" if userinfo is not None else "") + rest
    cut = re.search(r"[?#]", shown)
    return shown if cut is None else f"{shown[: cut.end()]}…"


def masked_reason(url: str, error: Exception) -> str:
    """Return ``": "`` and the text of an error about a URL; nothing if it may quote a part of a password."""
    return "" if "@" in url else f": {error}"


def mask_url_passwords(url: str) -> str:
    """Return a URL without its password and without the values of options that hold one.

    The user name and other options stay, because they tell databases apart:
    ``postgresql://me:password@host/db?sslmode=require`` becomes ``postgresql://me:***@host/db?sslmode=require``.
    """
    before, userinfo, rest = _split(url)
    if userinfo is not None:
        user, colon, _ = userinfo.partition(":")
        rest = f"{user}:{_MASK}@{rest}" if colon else f"{user}@{rest}"
    head, mark, query = rest.partition("?")
    return before + head + mark + "&".join(map(_mask_option, query.split("&")))


def _split(url: str) -> tuple[str, str | None, str]:
    """Split a URL into the part before the user name, user name and password (None without), and the rest."""
    start = _start_of_authority(url)
    end = start + len(re.split(r"[/?#]", url[start:], maxsplit=1)[0])
    at = url.rfind("@", start, end)
    if at >= 0:  # a later "@" may end a password that holds a "/"
        at = url.rfind("@", start, len(url.partition("?")[0]))
    elif _has_odd_port(url[start:end]):  # the password holds one of "/?#"
        at = url.rfind("@", end)
    if at < 0:
        return url[:start], None, url[start:]
    return url[:start], url[start:at], url[at + 1 :]


def _start_of_authority(url: str) -> int:
    """Return where user name or host begin; 0 for a text such as ``user:password@host``."""
    slashes, at = url.find("://"), url.find("@")
    if slashes >= 0 and not 0 <= at < slashes:
        return slashes + 3
    before = _BEFORE_AUTHORITY.match(url)
    return 0 if before is None or before[0].endswith(":") else before.end()


def _has_odd_port(authority: str) -> bool:
    """Return whether the part after the last colon is neither a port nor the end of an IPv6 address."""
    _, colon, port = authority.rpartition(":")
    return bool(colon) and not (port == "" or port.isdigit() or authority.endswith("]"))


def _mask_option(option: str) -> str:
    name, equals, _ = option.partition("=")
    return f"{name}={_MASK}" if equals and _SECRET_OPTION.search(unquote_plus(name)) else option
