"""The repr of a value that comes from outside, cut before it is made.

``repr`` reads the whole value and holds the GIL meanwhile: 0.08 s for a string of 8 million characters in an
array. ``reprlib`` sorts the keys of an object first, and fails if they are of several types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

__all__ = ["short_repr"]

_DEEPEST = 20


def short_repr(value: object, most: int = 80) -> str:
    """Return the first ``most`` characters of ``repr(value)``, and an ellipsis if it has more.

    Time and memory do not depend on the size of the value.

    Args:
        value: a value as parsed from JSON, or any other.
        most: maximum number of characters.
    """
    pieces, left = [], most
    for piece in _pieces(value, most, 0):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return "".join(pieces)[:most] + "…"
    return "".join(pieces)


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    if isinstance(value, str | bytes | bytearray):
        yield repr(value[: most + 1])
    elif not isinstance(value, Sequence | Mapping):
        yield repr(value)
    elif depth == _DEEPEST:
        yield "…"
    else:
        yield from _items(value, most, depth + 1)


def _items(value: Sequence[Any] | Mapping[Any, Any], most: int, depth: int) -> Iterator[str]:
    begin, end = "{}" if isinstance(value, Mapping) else "[]" if isinstance(value, list) else "()"
    yield begin
    for place, each in enumerate(islice(value, most)):
        if place:
            yield ", "
        yield from _pieces(each, most, depth)
        if isinstance(value, Mapping):
            yield ": "
            yield from _pieces(value[each], most, depth)
    yield ",)" if begin == "(" and len(value) == 1 else end
