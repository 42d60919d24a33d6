"""Work on the input of a request; in a thread if it is long, because it would block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from specclient.runtime.event_loop import run_in_thread
from specclient.runtime.json_slices import value_size

__all__ = ["run_on_input"]

T = TypeVar("T")

#: Size above which an input is long (:func:`~specclient.runtime.json_slices.value_size`).
_LONG = 4096


async def run_on_input(given: Any, work: Callable[[], T]) -> T:
    """Return the result of ``work``, which reads the input ``given``."""
    return work() if value_size(given, _LONG) <= _LONG else await run_in_thread(work)
