"""JSON bodies of requests: a bound on their number of values, checked before they are parsed.

The parser holds the GIL until it is done, and a byte or two of JSON become an object of 100 bytes.
The scan works in slices instead, so that other threads run in between. One long string is cheap in both.
"""

from __future__ import annotations

import re
from typing import Any

import pydantic_core

from specclient.openai_http.errors import bad_request, shown

__all__ = ["JSON_VALUES", "check_values", "json_object"]

#: Default of the most values in a body: more than the token ids that one request for embeddings may have.
JSON_VALUES = 400_000

_SLICE = 64 * 2**10
#: Every value but the first follows one of these characters, and every name precedes the third: names cost as
#: much as values and count, too. An empty array or object counts as two values.
_MARKS = (b",", b"[", b":", b"{")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTES = 2


def json_object(body: bytes, most: int = JSON_VALUES) -> dict[str, Any]:
    """Return the JSON object of a body.

    Args:
        body: the body of a request.
        most: maximum number of values and names.

    Raises:
        ServingError: 400, the body is not a JSON object, or has too many values.
    """
    check_values(body, most)
    try:
        given = pydantic_core.from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise bad_request(None, f"the request's body is not JSON: {error}", "invalid_json") from None
    if not isinstance(given, dict):
        raise bad_request(
            None, f"the request's body is {shown(given)}; it must be a JSON object", "invalid_json"
        )
    return given


def check_values(body: bytes, most: int) -> None:
    """Check the number of values in a JSON text, which need not be valid.

    Raises:
        ServingError: 400, the text has more than ``most`` values.
    """
    if len(body) <= most or _bound(body, most) <= most or _count(body, most) <= most:
        return
    raise bad_request(
        None,
        f"the request's body has more than {most} JSON values and names, which is this server's limit; send "
        "several requests, or raise json_values under [server] in specclient.toml",
        "too_many_values",
    )


def _bound(body: bytes, most: int) -> int:
    """Return an upper bound of the number of values, which includes the marks in strings.

    Counting ends above ``most``.
    """
    count = 1
    for begin in range(0, len(body), _SLICE):
        count += sum(map(body[begin : begin + _SLICE].count, _MARKS))
        if count > most:
            break
    return count


def _count(body: bytes, most: int) -> int:
    """Return the number of values; counting ends above ``most``."""
    count, quotes, inside, rest = 1, 0, False, b""
    for begin in range(0, len(body), _SLICE):
        piece = rest + body[begin : begin + _SLICE]
        rest = b""
        if b"\\" in piece:
            piece = _ESCAPE.sub(b"", piece)
            rest = b"\\" if piece.endswith(b"\\") else b""  # the escaped character is in the next slice
        parts = piece.split(b'"')
        count += sum(map(b"".join(parts[inside::2]).count, _MARKS))
        quotes += len(parts) - 1
        inside ^= len(parts) % 2 == 0
        if count > most or quotes > _QUOTES * most:
            return most + 1
    return count
