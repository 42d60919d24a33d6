"""A property that is made once, whichever threads ask for it first, and not in the middle of a fork.

``functools.cached_property`` makes the value once for each thread that asks before it is there (since Python
3.12), or holds a lock of its class meanwhile (before), which a forked child would wait for without end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from specclient.runtime.forks import import_lock

__all__ = ["made_once"]

T = TypeVar("T")


class made_once(Generic[T]):  # noqa: N801 - named as functools.cached_property is
    """A property whose value a method makes when it is first needed, with ``import_lock`` held.

    The method may import modules. It must not wait for another thread that imports or forks. An exception is
    raised in the caller, and the next one tries again. Deleting the attribute lets it be made anew.

    Args:
        make: the method.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        values = instance.__dict__  # which precedes this object as soon as it has the value
        with import_lock:
            if self._name not in values:
                values[self._name] = self._make(instance)
            made: T = values[self._name]
        return made
