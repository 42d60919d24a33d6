"""Predicted values as sums in the tokens of prompt and answer, so that a decision only adds numbers up.

A criterion's ``predict`` is evaluated once for each estimate, on a call whose tokens, dollars and seconds are
:class:`TokenSum` objects. If the result is such a sum, decisions need no Python call per route. Operations
that do not result in a sum raise :class:`NonlinearError`; such a criterion is evaluated for each call.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn

__all__ = ["NonlinearError", "TokenSum", "as_token_sum"]

_NUMBERS = (int, float, Decimal)
_NOT_A_SUM = "the result is not a sum in the tokens of prompt and answer"


class NonlinearError(TypeError):
    """An operation whose result is not a sum in tokens."""


class TokenSum:
    """A value of the form ``base + by_prompt * prompt_tokens + by_answer * completion_tokens``.

    It can be added to, subtracted from and multiplied by plain numbers and added to other sums.
    """

    __slots__ = ("base", "by_answer", "by_prompt")

    def __init__(self, base: float, by_prompt: float = 0.0, by_answer: float = 0.0) -> None:
        self.base = base
        self.by_prompt = by_prompt
        self.by_answer = by_answer

    def __add__(self, other: Any) -> TokenSum:
        if isinstance(other, TokenSum):
            return TokenSum(
                self.base + other.base, self.by_prompt + other.by_prompt, self.by_answer + other.by_answer
            )
        if isinstance(other, _NUMBERS):
            return TokenSum(self.base + float(other), self.by_prompt, self.by_answer)
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> TokenSum:
        return self * -1.0

    def __sub__(self, other: Any) -> TokenSum:
        difference: TokenSum = self + (-other)
        return difference

    def __rsub__(self, other: Any) -> TokenSum:
        difference: TokenSum = self * -1.0 + other
        return difference

    def __mul__(self, other: Any) -> TokenSum:
        if isinstance(other, _NUMBERS):
            factor = float(other)
            return TokenSum(self.base * factor, self.by_prompt * factor, self.by_answer * factor)
        raise NonlinearError(_NOT_A_SUM)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> TokenSum:
        if isinstance(other, _NUMBERS):
            return self * (1 / float(other))
        raise NonlinearError(_NOT_A_SUM)

    def _refuse(self, *_: Any) -> NoReturn:
        raise NonlinearError(_NOT_A_SUM)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def as_token_sum(value: Any) -> TokenSum | None:
    """Return the result of a ``predict`` as a sum, None for an unknown value.

    Raises:
        NonlinearError: the value is neither a sum nor a number.
    """
    if value is None or type(value) is TokenSum:
        return value
    if isinstance(value, _NUMBERS):
        return TokenSum(float(value))
    raise NonlinearError(f"{value!r} is not a number")
