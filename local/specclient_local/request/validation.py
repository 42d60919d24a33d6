"""Checks of parameter values, and the error that names the parameter, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from specclient.errors import BadRequestError, EngineError
from specclient.runtime.short_repr import short_repr

ValueCheck = Callable[[Any], bool]

_SHOWN = 1000
"""Characters of a text, or entries of a list or object, that an error message shows whole."""


class EmptyConstraintError(EngineError):
    """No token is allowed next: the request's constraints exclude all, or take too much work to evaluate."""

    def __init__(self) -> None:
        super().__init__(
            "no token may come next: the request's json_schema, regex or grammar, its bad_words and "
            "min_tokens exclude each other here, take too much work, or cannot be written in the model's "
            "tokens; loosen one of them."
        )


def bad_parameter(name: str, value: object, allowed: str) -> BadRequestError:
    """Return (not raise) the error for a parameter with an invalid value.

    Args:
        name: the parameter; becomes ``param`` of the error.
        value: its value.
        allowed: the allowed values in words, put after "allowed is".
    """
    error = BadRequestError(f"{name} is {shown(value)}; allowed is {allowed}.")
    error.param = name
    return error


def shown(value: object) -> str:
    """Return a value for an error message, as ``repr`` does; long ones are shortened."""
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}… ({len(value)} characters)"
    if isinstance(value, list | tuple | Mapping) and len(value) > _SHOWN:
        return f"{type(value).__name__} of {len(value)} values"
    return short_repr(value, _SHOWN)


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


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A check for finite numbers from ``low`` (excluded if ``open_low``) to ``high``."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def __call__(self, value: object) -> bool:
        """Return whether a value is in the range."""
        if not is_number(value) or not math.isfinite(value):
            return False
        return (self.low < value if self.open_low else self.low <= value) and value <= self.high


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """A check for integers from ``low`` to ``high``."""

    low: int
    high: int | None = None

    def __call__(self, value: object) -> bool:
        """Return whether a value is in the range."""
        return is_integer(value) and self.low <= value and (self.high is None or value <= self.high)


def number(low: float, high: float = math.inf, *, open_low: bool = False) -> NumberRange:
    """Return a check for finite numbers from ``low`` (excluded if ``open_low``) to ``high``."""
    return NumberRange(low, high, open_low)


def integer(low: int, high: int | None = None) -> IntegerRange:
    """Return a check for integers from ``low`` to ``high``."""
    return IntegerRange(low, high)


@dataclass(frozen=True, slots=True)
class OrNone:
    """A check that also allows None."""

    usable: ValueCheck

    def __call__(self, value: object) -> bool:
        """Return whether a value is None or usable."""
        return value is None or self.usable(value)


def optional(usable: ValueCheck) -> OrNone:
    """Return a check that also allows None."""
    return OrNone(usable)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A check for one of some words."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> bool:
        """Return whether a value is one of the words."""
        return isinstance(value, str) and value in self.words


def one_of(*words: str) -> OneOf:
    """Return a check for one of some words."""
    return OneOf(words)


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
