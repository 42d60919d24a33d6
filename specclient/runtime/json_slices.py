"""JSON text of large values, made in slices so that other threads run in between.

The encoder of the standard library holds the GIL until it is done, which takes 0.1 s for 400,000 values, and
no other request of a server goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

__all__ = ["encode_in_slices", "is_large"]

#: Largest size of a value that one call of the encoder encodes: about a millisecond.
_SLICE = 4096
#: Items of an array, or members of an object, that are looked at together.
_ITEMS = 1024
#: Characters of a text that are encoded in the time of a value.
_TEXT = 256


def encode_in_slices(encoder: json.JSONEncoder, value: Any) -> str:
    """Return ``encoder.encode(value)``.

    Args:
        encoder: an encoder without indentation, whose keys are not sorted.
        value: the value. Only members of dictionaries and items of lists are encoded in slices.

    Raises:
        TypeError, ValueError, RecursionError: as the encoder does.
    """
    if not is_large(value):
        return encoder.encode(value)
    try:
        return "".join(_parts(encoder, value))
    except RecursionError:
        return encoder.encode(value)  # it tells a circular reference from deep nesting


def is_large(value: Any) -> bool:
    """Return whether work on a JSON value takes more than about a millisecond.

    Each value in it counts as 1, and every 256 characters of a text as 1 more; counting ends above the limit.

    Args:
        value: dictionaries and lists are counted with what is in them.
    """
    count = 0
    containers: list[dict[str, Any] | list[Any]] = [[value]]
    while containers and count <= _SLICE:
        container = containers.pop()
        count += len(container)
        if count > _SLICE:
            break
        for each in container.values() if isinstance(container, dict) else container:
            if type(each) is str:
                count += len(each) // _TEXT
            elif type(each) is dict or type(each) is list:
                containers.append(each)
    return count > _SLICE


def _parts(encoder: json.JSONEncoder, value: Any) -> Iterator[str]:
    if type(value) is list:
        return _list_parts(encoder, value)
    if type(value) is dict and all(type(name) is str for name in value):
        return _dict_parts(encoder, value)
    return iter((encoder.encode(value),))


def _list_parts(encoder: json.JSONEncoder, values: list[Any]) -> Iterator[str]:
    yield "["
    separator = ""
    for begin in range(0, len(values), _ITEMS):
        for part, large in _in_slices(values[begin : begin + _ITEMS]):
            yield separator
            if large:
                yield from _parts(encoder, part[0])
            else:
                yield encoder.encode(part)[1:-1]
            separator = encoder.item_separator
    yield "]"


def _dict_parts(encoder: json.JSONEncoder, values: dict[str, Any]) -> Iterator[str]:
    yield "{"
    separator, names = "", iter(values)
    while some := list(islice(names, _ITEMS)):
        for part, large in _in_slices(some, values):
            yield separator
            if large:
                yield encoder.encode(part[0]) + encoder.key_separator
                yield from _parts(encoder, values[part[0]])
            else:
                yield encoder.encode({name: values[name] for name in part})[1:-1]
            separator = encoder.item_separator
    yield "}"


def _in_slices(items: list[Any], values: dict[str, Any] | None = None) -> Iterator[tuple[list[Any], bool]]:
    """Yield items together as long as they are not large, and large ones alone; and whether they are large.

    Args:
        items: values, or names of ``values``.
    """
    large = is_large(items if values is None else [values[name] for name in items])
    if not large or len(items) == 1:
        yield items, large
        return
    middle = len(items) // 2
    yield from _in_slices(items[:middle], values)
    yield from _in_slices(items[middle:], values)
