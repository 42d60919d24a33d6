"""Work on the input of a request; in a thread if it is long, because it would block the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from specclient.runtime.event_loop import run_in_thread

__all__ = ["run_on_input"]

T = TypeVar("T")

#: Items and parts above which an input is long.
_LONG = 1000


async def run_on_input(given: Any, work: Callable[[], T]) -> T:
    """Return the result of ``work``, which reads the input ``given``."""
    return work() if _size(given) <= _LONG else await run_in_thread(work)


def _size(given: Any) -> int:
    """Return the number of items and parts of an input."""
    if not isinstance(given, list):
        return 0
    contents = (item.get("content") for item in given if isinstance(item, Mapping))
    return len(given) + sum(len(content) for content in contents if isinstance(content, list))
