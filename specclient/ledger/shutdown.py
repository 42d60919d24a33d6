"""Turn the end of a program, also one by SIGTERM, into rows that are written, and a fork into a new start."""

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

__all__ = ["EXIT_S", "handle_sigterm", "live_writers", "obey_pending_sigterm", "register_writer"]

#: Seconds that the end of the program waits for rows in memory.
EXIT_S = 10.0


class FlushableWriter(Protocol):
    """What may hold rows that are not in the database yet; see
    :class:`specclient.ledger.writer.LedgerWriter`."""

    #: The thread that is writing now.
    owner: int | None

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write what is waiting."""
        ...

    def close(self, timeout_s: float | None = None) -> None:
        """Write what is waiting and close the database."""
        ...

    def after_fork(self) -> None:
        """Begin anew in a child."""
        ...


_live: weakref.WeakSet[Any] = weakref.WeakSet()
_armed = False
_called = False


def register_writer(writer: FlushableWriter) -> None:
    """Have a writer closed at the end; it is not kept alive."""
    _live.add(writer)


def live_writers() -> list[Any]:
    """Return the writers of this process."""
    return list(_live)


def handle_sigterm() -> None:
    """Have SIGTERM write what waits before the program dies of it, as it would have.

    Only a main thread may, and only where the program has left SIGTERM at its default: a handler of its own
    is never replaced, nor is one kept from replacing ours.
    """
    global _armed  # noqa: PLW0603 - a process has one disposition of a signal
    if _armed or threading.current_thread() is not threading.main_thread():
        return
    _armed = True
    with suppress(ValueError):  # the main thread of another interpreter than the first
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_term)


def obey_pending_sigterm() -> None:
    """Die of a SIGTERM that came while this very thread was writing."""
    if _called and threading.current_thread() is threading.main_thread():
        _die()


def _on_term(_: int, __: FrameType | None) -> None:
    global _called  # noqa: PLW0603
    if any(writer.owner == threading.get_ident() for writer in live_writers()):
        _called = (
            True  # it came amid a write of this thread's, which goes on and ends in `obey_pending_sigterm`
        )
    else:
        _die()


def _die() -> None:
    for writer in live_writers():
        with suppress(Exception):  # whatever goes wrong, the signal is obeyed
            writer.flush(EXIT_S)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


@atexit.register
def _at_exit() -> None:
    for writer in live_writers():
        writer.close(EXIT_S)


def _in_child() -> None:
    global _called  # noqa: PLW0603
    _called = False
    for writer in live_writers():
        writer.after_fork()


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
if _register is not None:
    _register(after_in_child=_in_child)
