"""Functions that return a client's key, and remember the latest one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

KeyFunction = Callable[[], str | Awaitable[str]]


class RememberedKey:
    """A function that returns the key, called before each HTTP attempt.

    Two objects with the same function are equal, so that copies of a client share its rate limits.

    Args:
        source: the function.

    Attributes:
        latest: the key that it returned last; empty before the first call.
    """

    def __init__(self, source: KeyFunction) -> None:
        self._source: Any = source
        self.latest = ""

    def __call__(self) -> Any:
        found = self._source()
        return self._noted_later(found) if inspect.isawaitable(found) else self._noted(found)

    async def _noted_later(self, found: Awaitable[Any]) -> Any:
        return self._noted(await found)

    def _noted(self, key: Any) -> Any:
        self.latest = key if isinstance(key, str) else ""
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RememberedKey) and bool(self._source == other._source)

    def __hash__(self) -> int:
        return hash(self._source)


class RememberedAsyncKey(RememberedKey):
    """A remembered key of a coroutine function, which runs in the event loop instead of a thread."""

    async def __call__(self) -> Any:
        return await super().__call__()


def remembered_key(source: KeyFunction) -> RememberedKey:
    """Return a function that remembers the latest key of ``source``."""
    return (RememberedAsyncKey if inspect.iscoroutinefunction(source) else RememberedKey)(source)
