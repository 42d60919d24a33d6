"""Fields of Gemini's requests, whose names may be in camel case or in snake case, as in Protobuf's JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specclient.openai_http.errors import ServingError, bad_request, shown

__all__ = ["array", "camel_case", "record", "text_field", "wrong"]

_SNAKE = re.compile(r"_([a-z])")


def camel_case(name: str) -> str:
    """Return a field's name in camel case."""
    return _SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def record(value: object, where: str) -> dict[str, Any]:
    """Return an object with its names in camel case, without null values.

    Raises:
        ServingError: 400, the value is not an object, or has a field in both cases: which of them counts
            would depend on the reader.
    """
    if not isinstance(value, dict):
        raise wrong(where, value, "an object")
    found: dict[str, Any] = {}
    for name, inner in value.items():
        if (key := camel_case(name)) in found:
            raise bad_request(where, f"{where} has {key[:80]!r} twice, in camel case and in snake case")
        found[key] = inner
    return {name: inner for name, inner in found.items() if inner is not None}


def array(value: object, where: str) -> list[Any]:
    """Return an array; a single object stands for an array of one.

    Raises:
        ServingError: 400, the value is neither.
    """
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [value]
    raise wrong(where, value, "an array of objects")


def text_field(holder: Mapping[str, Any], name: str, where: str) -> str:
    """Return a field that is a text.

    Raises:
        ServingError: 400, it is missing or no text.
    """
    value = holder.get(name)
    if isinstance(value, str):
        return value
    raise wrong(f"{where}.{name}", value, "a string")


def wrong(where: str, value: object, allowed: str) -> ServingError:
    """Return the error for a value that is not allowed."""
    return bad_request(where, f"{where} is {shown(value)}; it must be {allowed}")
