"""Writes waiting rows when the program ends, also by SIGTERM, and resets writers after a fork."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol

from specclient.runtime.exit_order import end_calls

__all__ = ["EXIT_S", "handle_sigterm", "live_writers", "obey_pending_sigterm", "register_writer"]

#: Seconds that interpreter exit waits at most for rows in memory to be written.
EXIT_S = 10.0


class FlushableWriter(Protocol):
    """Holds rows that are not in the database yet; see :class:`specclient.ledger.writer.LedgerWriter`."""

    #: Identifier of the thread that is writing now.
    owner: int | None

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write the waiting rows."""
        ...

    def close(self, timeout_s: float | None = None) -> None:
        """Write the waiting rows and close the database."""
        ...

    def after_fork(self) -> None:
        """Reset the writer in a forked child."""
        ...


_live: weakref.WeakSet[Any] = weakref.WeakSet()
_handler_decided = False
_sigterm_pending = False


def register_writer(writer: FlushableWriter) -> None:
    """Close a writer at interpreter exit; holds a weak reference only."""
    _live.add(writer)


def live_writers() -> list[Any]:
    """Return the writers of this process."""
    return list(_live)


def handle_sigterm() -> None:
    """Install a handler of SIGTERM that writes waiting rows and then lets the signal end the program.

    Does nothing outside the main thread, or if SIGTERM is not at its default: a handler of the program is
    never replaced, and a later one may replace ours.
    """
    global _handler_decided  # noqa: PLW0603 - signal handlers are per process
    if _handler_decided or threading.current_thread() is not threading.main_thread():
        return
    _handler_decided = True
    with suppress(ValueError):  # raised in the main thread of a subinterpreter
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_term)


def obey_pending_sigterm() -> None:
    """End the program if SIGTERM came while this thread was writing."""
    if _sigterm_pending and threading.current_thread() is threading.main_thread():
        _die()


def _on_term(_: int, __: FrameType | None) -> None:
    global _sigterm_pending  # noqa: PLW0603
    if any(writer.owner == threading.get_ident() for writer in live_writers()):
        _sigterm_pending = True  # the write goes on; `obey_pending_sigterm` then ends the program
    else:
        _die()


def _die() -> None:
    for writer in live_writers():
        with suppress(Exception):  # the program ends in any case
            writer.flush(EXIT_S)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


@atexit.register
def _at_exit() -> None:
    end_calls()
    for writer in live_writers():
        writer.close(EXIT_S)


def _in_child() -> None:
    global _sigterm_pending  # noqa: PLW0603
    _sigterm_pending = False
    for writer in live_writers():
        writer.after_fork()


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
if _register is not None:
    _register(after_in_child=_in_child)
