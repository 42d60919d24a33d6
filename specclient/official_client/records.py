"""The records of calls: :func:`last_call`, and the records of calls that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Self

from specclient.call.pipeline import Pipeline
from specclient.types.call import Call

_log = logging.getLogger("specclient")

#: Called with the record of each call that has ended.
CallListener = Callable[[Call], None]

_last: ContextVar[Call | None] = ContextVar("specclient_last_call", default=None)


def last_call() -> Call | None:
    """Return the record of the last call that a transport has served in this context; None without one.

    The record has the cost, the route, the tokens and the speculation of the call. That of a stream is set
    when the stream ends or is closed.

    A context is a thread or an asyncio task, as with :class:`contextvars.ContextVar`. A call that another
    thread or task makes, as a child of this one or not, is not seen here; ``on_call`` of the transport
    receives the records of all calls.
    """
    return _last.get()


def report(call: Call | None, listener: CallListener | None) -> None:
    """Set the result of :func:`last_call` in this context, and call the listener."""
    if call is None:
        return
    _last.set(call)
    if listener is not None:
        try:
            listener(call)
        except Exception:  # noqa: BLE001 - an answer that was paid for is not lost over its record
            _log.exception("on_call raised an exception for a finished call")


_capture: ContextVar[CallCapture | None] = ContextVar("specclient_call_capture", default=None)


def _note(call: Call) -> None:
    capture = _capture.get()
    if capture is not None:
        capture.call = call


class CallCapture:
    """A context that captures the record of the call that is made in it, also of one that fails.

    Args:
        pipeline: makes the call.

    Attributes:
        call: the record; of several attempts, that of the last one. None before the call has ended, and for
            calls without a model.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.call: Call | None = None
        if _note not in pipeline.observers:
            pipeline.observers.append(_note)

    def __enter__(self) -> Self:
        self._token = _capture.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _capture.reset(self._token)
