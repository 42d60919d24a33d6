"""JSON bodies of requests: a bound on their number of values, checked before they are parsed.

The parser holds the GIL until it is done, and a byte or two of JSON become an object of 100 bytes.
The scan works in slices instead, so that other threads run in between. One long string is cheap in both.
"""

from __future__ import annotations

import re
from typing import Any

import pydantic_core

from specclient.openai_http.errors import ServingError, bad_request, shown

__all__ = ["JSON_VALUES", "check_values", "json_object"]

#: Default of the most values in a body: more than the token ids that one request for embeddings may have.
JSON_VALUES = 400_000

_SLICE = 64 * 2**10
#: Every value but the first follows one of these characters; a name precedes the third. An empty array or
#: object counts as two values.
_MARKS = (b",", b"[", b":", b"{")
#: How many values a name or a long integer costs: the parser takes 1.3 µs for a name that it has not met
#: before and 0.4 µs for an integer of more than 64 bits, but 0.1 µs for other values. It takes a further
#: 0.1 µs for 8 digits of a long integer, for 4 escape sequences, and for 32 bytes of other than ASCII text.
_COSTLY, _DIGITS, _ESCAPES, _FOREIGN = 4, 8, 4, 32
_LONG_INTEGER = re.compile(rb"\d{19,}")
_ASCII = bytes(range(128))
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTES = 2


def json_object(body: bytes, most: int = JSON_VALUES) -> dict[str, Any]:
    """Return the JSON object of a body.

    Args:
        body: the body of a request.
        most: maximum number of values; a name or an integer of more than 18 digits counts as four.

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

    Args:
        most: as for :func:`json_object`.

    Raises:
        ServingError: 400, the text has more than ``most`` values.
    """
    if _COSTLY * len(body) <= most:
        return
    if _bound(body, most) > most and _count(body, most) > most:
        raise _too_many(
            f"more than {most} JSON values, which is this server's limit (a name counts as {_COSTLY})"
        )
    if _text_cost(body) > most:
        raise _too_many(
            f"more escape sequences or bytes of other than ASCII text than this server's limit of {most} "
            f"JSON values ({_ESCAPES} sequences or {_FOREIGN} bytes count as one)"
        )


def _too_many(what: str) -> ServingError:
    return bad_request(
        None,
        f"the request's body has {what}; send several requests, or raise json_values under [server] in "
        "specclient.toml",
        "too_many_values",
    )


def _bound(body: bytes, most: int) -> int:
    """Return an upper bound of the number of values, which includes the marks in strings.

    Counting ends above ``most``.
    """
    count = 1
    for begin in range(0, len(body), _SLICE):
        count += _values_in(body[begin : begin + _SLICE])
        if count > most:
            break
    return count


def _values_in(piece: bytes) -> int:
    """Return the number of values that begin in a piece without texts."""
    marks, integers = sum(map(piece.count, _MARKS)), _LONG_INTEGER.findall(piece)
    costly = piece.count(b":") + len(integers)
    return marks + (_COSTLY - 1) * costly + sum(len(each) // _DIGITS for each in integers)


def _text_cost(body: bytes) -> int:
    """Return how many values the characters cost that the parser does not just copy."""
    escapes, foreign = body.count(b"\\"), 0
    for begin in range(0, len(body), _SLICE):
        foreign += len(body[begin : begin + _SLICE].translate(None, _ASCII))
    return escapes // _ESCAPES + foreign // _FOREIGN


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
        count += _values_in(b"".join(parts[inside::2]))
        quotes += len(parts) - 1
        inside ^= len(parts) % 2 == 0
        if count > most or quotes > _QUOTES * most:
            return most + 1
    return count
