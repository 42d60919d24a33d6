"""Handlers of events by type, for connections whose events are dispatched instead of read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from specclient.call.websocket.session_facts import member_of
from specclient.errors import OpenAIError

__all__ = ["EventHandlers"]

_Handler = Callable[..., Any]
#: The type of handlers that receive every event.
_EVERY = "event"


class EventHandlers:
    """Mixin with the handlers of a connection, or of a connection that is not open yet."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[tuple[_Handler, bool]]] = {}
        self._handlers_lock = threading.Lock()

    def on(self, event_type: str, handler: _Handler | None = None) -> Self | Callable[[_Handler], _Handler]:
        """Add a handler of an event type, ``event`` for all; without ``handler``, return a decorator."""
        return self._add(event_type, handler, once=False)

    def once(self, event_type: str, handler: _Handler | None = None) -> Self | Callable[[_Handler], _Handler]:
        """Add a handler that is removed when it is called; see :meth:`on`."""
        return self._add(event_type, handler, once=True)

    def off(self, event_type: str, handler: _Handler) -> Self:
        """Remove a handler; one that was added several times is removed once."""
        with self._handlers_lock:
            found = self._handlers.get(event_type, [])
            index = next((i for i, (each, _) in enumerate(found) if each == handler), None)
            if index is not None:
                del found[index]
        return self

    def take_handlers(self, other: EventHandlers) -> None:
        """Move the handlers of another object to this one."""
        with other._handlers_lock, self._handlers_lock:
            for kind, handlers in other._handlers.items():
                self._handlers.setdefault(kind, []).extend(handlers)
            other._handlers.clear()

    def handlers_of(self, event: Any) -> list[_Handler]:
        """Return the handlers to call with an event; those for one call are removed.

        Raises:
            OpenAIError: the event is an error, and there is no handler for it.
        """
        kind = getattr(event, "type", "")
        found = [*self._called(kind), *(self._called(_EVERY) if kind != _EVERY else ())]
        if kind == "error" and not found:
            raise OpenAIError(f"the server sent an error, for which there is no handler: {_text_of(event)}")
        return found

    def _add(
        self, kind: str, handler: _Handler | None, *, once: bool
    ) -> Self | Callable[[_Handler], _Handler]:
        def add(function: _Handler) -> _Handler:
            with self._handlers_lock:
                self._handlers.setdefault(kind, []).append((function, once))
            return function

        if handler is None:
            return add
        add(handler)
        return self

    def _called(self, kind: str) -> list[_Handler]:
        with self._handlers_lock:
            found = self._handlers.get(kind, [])
            self._handlers[kind] = [(handler, once) for handler, once in found if not once]
            return [handler for handler, _ in found]


def _text_of(event: Any) -> str:
    """Return the message of an error event; the rest may quote the caller's input."""
    body = member_of(event, "error") or event
    return str(member_of(body, "message") or member_of(body, "code") or "no message")
