"""Turn a parameter's value into nothing, or into the error that names it, what is allowed and the way out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

from specclient.errors import BadRequestError

ValueCheck = Callable[[Any], bool]


def bad_parameter(name: str, value: object, allowed: str) -> BadRequestError:
    """Return (not raise) the error for a parameter with an unusable value."""
    error = BadRequestError(f"{name} is {value!r}; allowed is {allowed}.")
    error.param = name
    return error


def check(name: str, value: object, allowed: str, usable: ValueCheck) -> None:
    """Raise :func:`bad_parameter`'s error unless a value is usable."""
    if not usable(value):
        raise bad_parameter(name, value, allowed)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(low: float, high: float = math.inf, *, open_low: bool = False) -> ValueCheck:
    """Allow finite numbers from ``low`` (left out if ``open_low``) to ``high``."""

    def usable(value: object) -> bool:
        if not is_number(value) or not math.isfinite(value):
            return False
        return (low < value if open_low else low <= value) and value <= high

    return usable


def integer(low: int, high: int | None = None) -> ValueCheck:
    """Allow integers from ``low`` to ``high``."""
    return lambda value: is_integer(value) and low <= value and (high is None or value <= high)


def optional(usable: ValueCheck) -> ValueCheck:
    """Allow None, too."""
    return lambda value: value is None or usable(value)


def several(usable: ValueCheck, most: int | None = None) -> ValueCheck:
    """Allow None, or a list or tuple of so many usable values."""
    return lambda value: (
        value is None
        or (
            isinstance(value, list | tuple)
            and (most is None or len(value) <= most)
            and all(map(usable, value))
        )
    )


def text(value: object) -> bool:
    """Allow a string that is not empty."""
    return isinstance(value, str) and bool(value)
