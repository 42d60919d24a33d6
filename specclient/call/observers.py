"""The observers of calls: the ledger, budgets, metrics and others that receive each finished call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from specclient.runtime.event_loop import cancel_shield
from specclient.types.call import Call

__all__ = ["Observer", "observe_all"]

_log = logging.getLogger("specclient")
_NOT_RECORDED = "a finished call could not be recorded"

#: Receives a finished call; returns an awaitable that the call waits for, or None.
Observer = Callable[[Call], Awaitable[None] | None]


async def observe_all(observers: Sequence[Observer], calls: Sequence[Call]) -> None:
    """Give finished calls to all observers, even if the caller has been cancelled.

    An observer's exception is logged, because a failing record must not lose a paid answer.
    """
    waiting = [
        rest for call in calls for observe in observers if (rest := _observed(observe, call)) is not None
    ]
    if waiting:
        with cancel_shield():
            for rest in waiting:
                try:
                    await rest
                except Exception:  # noqa: BLE001 - as in `_observed`
                    _log.exception(_NOT_RECORDED)


def _observed(observe: Observer, call: Call) -> Awaitable[None] | None:
    """Call an observer; return the awaitable that the call waits for, or None."""
    try:
        return observe(call)
    except Exception:  # noqa: BLE001 - a failing record must not lose a paid answer
        _log.exception(_NOT_RECORDED)
    return None
