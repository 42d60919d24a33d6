"""The order of work at the interpreter's exit: calls end before the ledgers that record them close."""

from __future__ import annotations

import atexit
from collections.abc import Callable

__all__ = ["end_calls", "end_calls_at_exit"]

_ends: list[Callable[[], None]] = []


def end_calls_at_exit(end: Callable[[], None]) -> None:
    """Call a function at the interpreter's exit that ends running calls.

    ``atexit`` runs the functions of modules that were imported last first, and a ledger's module is imported
    with the first call. Its function therefore calls :func:`end_calls` first, and rows of calls that would go
    on are not lost. ``end`` runs again in its own turn, for calls that other exit handlers make.
    """
    _ends.append(end)
    atexit.register(end)


def end_calls() -> None:
    """Run the functions that end running calls."""
    for end in _ends:
        end()
