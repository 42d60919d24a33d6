"""The order of work at the interpreter's exit: calls end before the ledgers that record them close."""

from __future__ import annotations

import atexit
from collections.abc import Callable

__all__ = ["end_calls", "end_calls_at_exit"]

_ends: list[Callable[[], None]] = []


def end_calls_at_exit(end: Callable[[], None]) -> None:
    """Register a function that ends running calls, for the interpreter's exit.

    ``atexit`` runs the newest registration first, and a ledger registers with the first call. Its exit
    handler therefore calls :func:`end_calls` first, so that the rows of running calls are not lost. ``end``
    runs again in its own turn, for calls made by other exit handlers.
    """
    _ends.append(end)
    atexit.register(end)


def end_calls() -> None:
    """Run the functions that end running calls."""
    for end in _ends:
        end()
