"""A sequence that makes its items when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T], Generic[T]):
    """A sequence that makes each item once, on first access. It equals, and is pickled as, its tuple.

    Args:
        count: the number of items.
        make: returns the item of an index.
    """

    __slots__ = ("_count", "_made", "_make")

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make
        self._made: dict[int, T] = {}

    def _one(self, index: int) -> T:
        made = self._made
        if index not in made:
            made[index] = self._make(index)
        return made[index]

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(map(self._one, range(self._count)[index]))
        return self._one(range(self._count)[index])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return map(self._one, range(self._count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazySequence | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)
