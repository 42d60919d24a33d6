"""JSON text of large values, made in slices so that other threads run in between.

The encoder of the standard library holds the GIL until it is done, which takes 0.1 s for 400,000 values, and
no other request of a server goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["encode_in_slices"]

#: Most values that one call of the encoder encodes: about a millisecond.
_SLICE = 4096


def encode_in_slices(encoder: json.JSONEncoder, value: Any) -> str:
    """Return ``encoder.encode(value)``.

    Args:
        encoder: an encoder without indentation, whose keys are not sorted.
        value: the value. Only members of dictionaries and items of lists are encoded in slices.

    Raises:
        TypeError, ValueError, RecursionError: as the encoder does.
    """
    if _size(value) <= _SLICE:
        return encoder.encode(value)
    try:
        return "".join(_parts(encoder, value))
    except RecursionError:
        return encoder.encode(value)  # it tells a circular reference from deep nesting


def _size(value: Any) -> int:
    """Return the number of values in a value; counting ends above a slice."""
    count, containers = 1, [value]
    while containers and count <= _SLICE:
        container = containers.pop()
        if type(container) is dict:
            inner: Iterable[Any] = container.values()
        elif type(container) is list:
            inner = container
        else:
            continue
        count += len(container)
        if count <= _SLICE:
            containers += [each for each in inner if type(each) is dict or type(each) is list]
    return count


def _parts(encoder: json.JSONEncoder, value: Any) -> Iterator[str]:
    if type(value) is list:
        return _list_parts(encoder, value)
    if type(value) is dict and all(type(name) is str for name in value):
        return _dict_parts(encoder, value)
    return iter((encoder.encode(value),))


def _list_parts(encoder: json.JSONEncoder, values: list[Any]) -> Iterator[str]:
    yield "["
    separator, pending, size = "", [], 0
    for each in values:
        own = _size(each)
        if own <= _SLICE:
            pending.append(each)
            size += own
        if pending and (own > _SLICE or size > _SLICE):
            yield separator + encoder.encode(pending)[1:-1]
            separator, pending, size = encoder.item_separator, [], 0
        if own > _SLICE:
            yield separator
            yield from _parts(encoder, each)
            separator = encoder.item_separator
    if pending:
        yield separator + encoder.encode(pending)[1:-1]
    yield "]"


def _dict_parts(encoder: json.JSONEncoder, values: dict[str, Any]) -> Iterator[str]:
    yield "{"
    separator, pending, size = "", {}, 0
    for name, each in values.items():
        own = _size(each)
        if own <= _SLICE:
            pending[name] = each
            size += own
        if pending and (own > _SLICE or size > _SLICE):
            yield separator + encoder.encode(pending)[1:-1]
            separator, pending, size = encoder.item_separator, {}, 0
        if own > _SLICE:
            yield separator + encoder.encode(name) + encoder.key_separator
            yield from _parts(encoder, each)
            separator = encoder.item_separator
    if pending:
        yield separator + encoder.encode(pending)[1:-1]
    yield "}"
