"""Checks of parameter values, and the error that names the parameter, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

from specclient.errors import BadRequestError

ValueCheck = Callable[[Any], bool]


def bad_parameter(name: str, value: object, allowed: str) -> BadRequestError:
    """Return (not raise) the error for a parameter with an invalid value.

    Args:
        name: the parameter; becomes ``param`` of the error.
        value: its value.
        allowed: the allowed values in words, put after "allowed is".
    """
    error = BadRequestError(f"{name} is {value!r}; allowed is {allowed}.")
    error.param = name
    return error


def check(name: str, value: object, allowed: str, usable: ValueCheck) -> None:
    """Raise the error of :func:`bad_parameter` unless ``usable(value)``."""
    if not usable(value):
        raise bad_parameter(name, value, allowed)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float. Booleans do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an int. Booleans do not count."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(low: float, high: float = math.inf, *, open_low: bool = False) -> ValueCheck:
    """Return a check for finite numbers from ``low`` (excluded if ``open_low``) to ``high``."""

    def usable(value: object) -> bool:
        if not is_number(value) or not math.isfinite(value):
            return False
        return (low < value if open_low else low <= value) and value <= high

    return usable


def integer(low: int, high: int | None = None) -> ValueCheck:
    """Return a check for integers from ``low`` to ``high``."""
    return lambda value: is_integer(value) and low <= value and (high is None or value <= high)


def optional(usable: ValueCheck) -> ValueCheck:
    """Return a check that also allows None."""
    return lambda value: value is None or usable(value)


def optional_list_of(usable: ValueCheck, most: int | None = None) -> ValueCheck:
    """Return a check for None, or a list or tuple of at most ``most`` usable values."""
    return lambda value: (
        value is None
        or (
            isinstance(value, list | tuple)
            and (most is None or len(value) <= most)
            and all(map(usable, value))
        )
    )


def text(value: object) -> bool:
    """Return whether a value is a string that is not empty."""
    return isinstance(value, str) and bool(value)
