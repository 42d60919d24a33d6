"""Collects the result of a hosted agent's turn, its final messages, from the session's events; no I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from specclient.errors import OpenAIError
from specclient.resources.agents.output_types import output_decoder
from specclient.types.open import OpenObject, open_class

O = TypeVar("O")  # noqa: E741  # the type of a parsed output

NoResultReason = Literal["failed", "cancelled", "requires_action", "incomplete", "observation_failed"]
_ENDS = frozenset({"completed", "failed", "cancelled"})
_TURN_ENDS = frozenset(f"agent.session.turn.{end}" for end in _ENDS)


def nested_attribute(value: Any, *path: str) -> Any:
    """Return an attribute of an open object by its path; None if any part of the path is missing."""
    for name in path:
        value = getattr(value, name, None)
    return value


if TYPE_CHECKING:
    _OpenMessage = OpenObject
else:
    _OpenMessage = open_class("beta.AgentSessionMessage")


class AgentSessionMessage(_OpenMessage):
    """A message of a session."""

    __module__ = _OpenMessage.__module__

    @property
    def output_text(self) -> str:
        """The text of the message; empty if it has no text."""
        return "".join(
            part.text for part in nested_attribute(self, "content") or () if part.type == "output_text"
        )


@dataclass(frozen=True)
class AgentTurnResult(Generic[O]):
    """The result of a completed turn.

    Attributes:
        turn: the turn in its latest received state.
        messages: the agent's final messages, in order.
        output_parsed: their first text parsed as the requested type; None if no type was requested.
    """

    turn: Any
    messages: list[Any]
    output_parsed: O | None = None

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return str(self.turn.session_id)

    @property
    def turn_id(self) -> str:
        """The id of the turn."""
        return str(self.turn.id)

    @property
    def output_text(self) -> str:
        """The texts of the final messages, joined without a separator."""
        return "".join(message.output_text for message in self.messages)

    def parse(self, output_type: type[Any]) -> AgentTurnResult[Any]:
        """Return the result with its text parsed as ``output_type``; the session's output format stays.

        Raises:
            AgentOutputParseError: there is no text, a text does not match, or the type is not supported.
        """
        try:
            read = output_decoder(output_type)
            parts = [part for message in self.messages for part in message.content or ()]
            parsed = [read(part.text) for part in parts if part.type == "output_text"]
        except Exception:  # noqa: BLE001  # the exception's message may quote the output
            parsed = []
        if not parsed:
            raise AgentOutputParseError(self)
        return AgentTurnResult(self.turn, self.messages, parsed[0])


class AgentOutputParseError(OpenAIError):
    """The output of a completed turn does not match the requested type.

    Attributes:
        result: the result of the turn, with the output as text.
    """

    def __init__(self, result: AgentTurnResult[Any]) -> None:
        super().__init__("Could not parse the agent's output as the requested type; see `result`")
        self.result = result


class AgentTurnResultError(OpenAIError):
    """No result of a completed turn could be collected; the turn itself may continue.

    Attributes:
        reason: ``failed`` or ``cancelled``: the turn ended so; ``requires_action``: it waits for a tool that
            has no handler; ``incomplete``: the events ended before the turn; ``observation_failed``: reading
            the events or submitting a tool's output failed, see ``__cause__``.
        turn, session_id, turn_id, messages, required_actions: as far as they are known.
    """

    def __init__(
        self,
        reason: NoResultReason,
        *,
        turn: Any,
        session_id: str | None,
        messages: list[Any],
        required_actions: list[Any],
    ) -> None:
        super().__init__(f"Could not collect the result of the agent's turn: {reason}")
        self.reason = reason
        self.turn = turn
        self.session_id = session_id
        self.turn_id: str | None = nested_attribute(turn, "id")
        self.messages = messages
        self.required_actions = required_actions


class TurnResultCollector:
    """Collects the result of the main agent's first turn, event by event; no I/O."""

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id = session_id
        self.turn: Any = None
        self.is_done = False
        self.cause: Exception | None = None
        self._session_failed = False
        self._actions: list[Any] = []
        self._messages: dict[Any, tuple[int, Any]] = {}
        self._error: AgentTurnResultError | None = None
        self._result: AgentTurnResult[Any] | None = None

    def feed(self, event: Any) -> None:
        """Apply an event; events after the end of the turn are ignored."""
        if self.is_done:
            return
        kind = nested_attribute(event, "type")
        if kind == "agent.session.created":
            self.session_id = nested_attribute(event, "session", "id")
        elif kind == "agent.session.turn.created":
            if self.turn is None and nested_attribute(event, "turn", "subagent_id") is None:
                self.turn, self.session_id = _copy(event.turn), event.session_id
        elif kind in _TURN_ENDS:
            if self.turn is not None and event.turn_id == self.turn.id:
                self.turn, self._actions = _copy(event.turn), []
        elif kind == "agent.session.turn.item.done":
            self._item(event.item, nested_attribute(event, "output_index"))
        else:
            self._session(kind, event)

    def _item(self, item: Any, index: Any) -> None:
        if (
            self.turn is None
            or nested_attribute(item, "turn_id") != self.turn.id
            or nested_attribute(item, "type") != "message"
        ):
            return
        if (
            nested_attribute(item, "phase") != "commentary"
            and nested_attribute(item, "status") == "completed"
        ):
            message = AgentSessionMessage.model_validate(item.model_dump(exclude_unset=True))
            self._messages[nested_attribute(item, "id")] = (index or 0, message)

    def _session(self, kind: str, event: Any) -> None:
        if kind == "agent.session.in_progress":
            self._actions = []
        elif kind == "agent.session.requires_action":
            self.session_id = nested_attribute(event, "session", "id")
            self._actions = [
                _copy(action) for action in nested_attribute(event, "session", "required_actions") or ()
            ]
        elif kind == "agent.session.failed":
            self.session_id = nested_attribute(event, "session", "id")
            self._session_failed = self.is_done = True
        elif kind == "agent.session.idle" and nested_attribute(self.turn, "status") in _ENDS:
            self._actions, self.is_done = [], True

    def messages(self) -> list[Any]:
        """Return the final messages so far, in order."""
        return [message for _, message in sorted(self._messages.values(), key=lambda entry: entry[0])]

    def error(self, reason: NoResultReason) -> AgentTurnResultError:
        """Return the error that says why there is no result; later calls return the first error."""
        if self._error is None:
            self._error = AgentTurnResultError(
                reason,
                turn=self.turn,
                session_id=self.session_id,
                messages=self.messages(),
                required_actions=self._actions,
            )
            self.turn, self._actions, self.is_done = None, [], True
            self._messages.clear()
        return self._error

    def check(self, handled: Collection[str] = ()) -> None:
        """Raise if it is already known that there will be no result.

        Args:
            handled: the names of the tools that have handlers.

        Raises:
            AgentTurnResultError: there will be no result; ``reason`` says why.
        """
        if self._error is not None:
            raise self._error
        status = nested_attribute(self.turn, "status")
        if self._session_failed or status == "failed":
            raise self.error("failed")
        if status == "cancelled":
            raise self.error("cancelled")
        if any(not _is_handled(action, handled) for action in self._actions):
            raise self.error("requires_action")
        if self.cause is not None:
            raise self.error("observation_failed") from self.cause

    def result(self) -> AgentTurnResult[Any]:
        """Return the result; each call returns the same object.

        Raises:
            AgentTurnResultError: there is no result.
        """
        if self._result is None:
            self.check()
            if not self.is_done or nested_attribute(self.turn, "status") != "completed":
                raise self.error("incomplete")
            self._result = AgentTurnResult(_copy(self.turn), self.messages())
            self._messages.clear()
        return self._result


def _is_handled(action: Any, handled: Collection[str]) -> bool:
    return nested_attribute(action, "type") == "function_call" and nested_attribute(action, "name") in handled


def _copy(value: Any) -> Any:
    """Return a copy of an open object, so that changes to its event do not affect it."""
    return value.model_copy(deep=True) if isinstance(value, OpenObject) else value


class OnDemandCollector:
    """Collects a result only if one is requested, so that plain iteration over the events costs nothing.

    Args:
        session_id: the session's id, if known.
        output_type: the type to parse the result's text as; None leaves it text.

    Raises:
        TypeError: ``output_type`` is neither a pydantic model nor a dataclass.
    """

    def __init__(self, session_id: str | None = None, output_type: Any = None) -> None:
        if output_type is not None:
            output_decoder(output_type)
        self._output_type = output_type
        self._session_id = session_id
        self._collector: TurnResultCollector | None = None
        self._started = False
        self._parsed: AgentTurnResult[Any] | None = None

    def collector(self) -> TurnResultCollector:
        """Return the collector; the first call starts the collection.

        Raises:
            RuntimeError: events were read before the first call.
        """
        if self._collector is None:
            if self._started:
                raise RuntimeError(
                    "events were read before a result was requested; call with_result_collection() before "
                    "the first one, or get_final_result() on a fresh stream"
                )
            self._collector = TurnResultCollector(self._session_id)
        return self._collector

    def feed(self, event: Any) -> None:
        """Apply an event."""
        self._started = True
        if self._collector is not None:
            self._collector.feed(event)

    def failed(self, error: Exception) -> None:
        """Record the error because of which no further events can be read."""
        if self._collector is not None and not self._collector.is_done:
            self._collector.cause = error

    def result(self) -> AgentTurnResult[Any]:
        """Return the result, parsed as the output type if there is one.

        Raises:
            AgentTurnResultError: there is no result.
            AgentOutputParseError: the text does not match the output type.
        """
        result = self.collector().result()
        if self._output_type is None:
            return result
        if self._parsed is None:
            self._parsed = result.parse(self._output_type)
        return self._parsed
