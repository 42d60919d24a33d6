"""The tokens of the rows that an EAGLE head has cached, for sharing the rows of a common prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class TokenPairs(Sequence[tuple[int, int]]):
    """Pairs of neighbouring tokens, as a view of a growing list.

    Row i of a head's cache is made of token i + 1 and of the target's state at position i. Two rows are equal
    if all tokens up to i + 1 are, so rows are compared by pairs.

    Args:
        tokens: the tokens of a request, of which the last one begins no pair.
    """

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return max(0, len(self.tokens) - 1)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> TokenPairs: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | TokenPairs:
        if isinstance(index, int):
            first = range(len(self))[index]
            return self.tokens[first], self.tokens[first + 1]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"the step of a slice of pairs is {step}; allowed is 1")
        return TokenPairs(self.tokens[start : stop + 1] if stop > start else [])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenPairs) and self.tokens == other.tokens

    __hash__ = None  # type: ignore[assignment]  # its list grows
