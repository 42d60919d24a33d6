"""Runs the program's signal handlers outside the callbacks of an event loop that the main thread runs.

Python runs a signal handler between any two instructions of the main thread. An exception that it raises,
such as KeyboardInterrupt, would otherwise end whatever callback is running, and the loop could not go on.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["DeferredSignals"]

#: The interpreter's own functions, where it has them: those of ``signal`` convert to enums, which takes ten
#: times as long for the 64 signals.
_functions: Final[Any] = sys.modules.get("_signal", signal)
_NUMBERS: Final = tuple(int(number) for number in signal.valid_signals())


class DeferredSignals:
    """A context at whose end the handlers written in Python run for the signals that have arrived in it.

    In other threads than the main thread it has no effect, because Python runs no handlers there. Signals
    without a handler in Python act as before.

    Args:
        interrupt: called when a signal has arrived, between any two instructions of the main thread; makes
            the body of the context end soon.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._note_signal: Callable[[int, FrameType | None], None] | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._arrived: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.get_ident() == threading.main_thread().ident:
            try:
                self._defer()
            except BaseException:  # from a handler that was not replaced yet
                self._restore()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        self._note_signal = None  # a reference cycle
        while self._arrived:
            number, frame = self._arrived.pop(0)
            self._handlers[number](number, frame)

    def have_arrived(self) -> bool:
        """Return whether signals have arrived."""
        return bool(self._arrived)

    def _defer(self) -> None:
        self._note_signal = self._note  # one object, so that it can be recognised
        for number in _NUMBERS:
            handler = _functions.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                with suppress(ValueError):  # the main thread of a subinterpreter, which gets no signals
                    _functions.signal(number, self._note_signal)

    def _restore(self) -> None:
        try:
            for number, handler in self._handlers.items():
                if (
                    _functions.getsignal(number) is self._note_signal
                ):  # a callback may have installed another one
                    _functions.signal(number, handler)
        except BaseException:  # from a handler that is installed again already
            self._restore()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; if it is noted already, run its handler at once.

        A second Ctrl-C so ends a callback that takes too long.
        """
        if any(number == arrived for arrived, _ in self._arrived):
            self._handlers[number](number, frame)
            return
        self._arrived.append((number, frame))
        self._interrupt()
