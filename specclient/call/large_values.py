"""Work on a value of a request; in a thread if it is large, because it would block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.json_slices import is_large

__all__ = ["run_on_value"]

T = TypeVar("T")


async def run_on_value(value: Any, work: Callable[[], T]) -> T:
    """Return the result of ``work``, which reads ``value``."""
    return await run_in_thread(work) if is_large(value) else work()
