"""Fields that a response reports: counts, and objects with fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.types.base import WireModel

__all__ = ["COUNT_DIGITS", "COUNT_END", "count", "fields_of"]

#: The number of digits of the largest valid count, and the smallest count that is invalid.
COUNT_DIGITS = 15
COUNT_END = 10**COUNT_DIGITS


def count(value: object) -> int | None:
    """Return a value if it is a valid count: an integer from 0 to below 10^15; otherwise None."""
    # By type(), because a bool is an int; runs for a dozen fields of every answer, most of them None.
    return value if type(value) is int and 0 <= value < COUNT_END else None


def fields_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of a mapping or model; an empty mapping for any other value."""
    if value is None:
        return {}
    if isinstance(value, WireModel):
        return {**value.__dict__, **(value.model_extra or {})}
    return value if isinstance(value, Mapping) else {}
