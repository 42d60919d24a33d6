"""How a request asks for the response cache: the header ``x-specclient-cache``, or ``specclient.cache``.

The header is ``1`` or ``0``, a maximum age in seconds, or a list such as ``max-age=3600, random``. The field
of the extension object is true, false, a number of seconds, or an object with ``max_age_s`` and ``random``.
The field wins. Without either, the configuration of the server decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from specclient.errors import ConfigurationError
from specclient.openai_http.errors import bad_request, shown
from specclient.types.cache_options import CacheOptions

__all__ = ["CACHE_HEADER", "cache_field", "cache_header"]

#: The header of requests; in a response, ``hit`` states that the cache answered.
CACHE_HEADER = "x-specclient-cache"
_ON, _OFF = frozenset({"1", "true", "on"}), frozenset({"0", "false", "off"})
_ALLOWED = "1, 0, a number of seconds above 0, or a list of max-age=SECONDS and random"


def cache_header(headers: Mapping[str, str]) -> CacheOptions | Literal[False] | None:
    """Return what the headers of a request say about the cache; None if they say nothing.

    Raises:
        ServingError: 400, the value of the header is invalid.
    """
    text = headers.get(CACHE_HEADER)
    if text is None:
        return None
    word = text.strip().lower()
    if word in _OFF:
        return False
    fields: dict[str, Any] = {}
    for part in [] if word in _ON else word.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name == "random" and not equals:
            fields["random"] = True
        elif name == "max-age" and equals:
            fields["max_age_s"] = _seconds(value, text)
        elif "," not in word and not equals:
            fields["max_age_s"] = _seconds(name, text)
        else:
            raise _refused(text)
    return CacheOptions(**fields)


def cache_field(value: object) -> CacheOptions | Literal[False] | None:
    """Return the value of ``specclient.cache``; None if it is missing.

    Raises:
        ServingError: 400, the value is invalid.
    """
    if isinstance(value, str | list):
        allowed = "true, false, a number of seconds, or an object"
        raise bad_request("specclient.cache", f"specclient.cache is {shown(value)}; it must be {allowed}")
    try:
        return CacheOptions.of(value)
    except ConfigurationError as error:
        raise bad_request("specclient.cache", f"specclient.{error}") from None


def _seconds(text: str, header: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise _refused(header) from None
    if not seconds > 0:
        raise _refused(header)
    return seconds


def _refused(text: str) -> Exception:
    return bad_request(
        None, f"header {CACHE_HEADER!r} is {shown(text)}; it must be {_ALLOWED}", "invalid_header"
    )
