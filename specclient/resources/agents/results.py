"""Turn the events of a hosted agent's session into the result of a turn: its final messages, parsed; pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from specclient.errors import OpenAIError
from specclient.resources.agents.output_types import output_decoder
from specclient.types.open import OpenObject, open_class

O = TypeVar("O")  # noqa: E741  # what an output is parsed as

NoResultReason = Literal["failed", "cancelled", "requires_action", "incomplete", "observation_failed"]
_ENDS = frozenset({"completed", "failed", "cancelled"})
_TURN_ENDS = frozenset(f"agent.session.turn.{end}" for end in _ENDS)


def nested_attribute(value: Any, *path: str) -> Any:
    """Return an attribute within an open object, None where some step of the path was not sent."""
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
        """What the message says; empty where it says nothing in text."""
        return "".join(
            part.text for part in nested_attribute(self, "content") or () if part.type == "output_text"
        )


@dataclass(frozen=True)
class AgentTurnResult(Generic[O]):
    """What a turn came to that ended well.

    Attributes:
        turn: as it was told last.
        messages: the agent's final ones, in order.
        output_parsed: their first text as the type that was asked for; None where none was.
    """

    turn: Any
    messages: list[Any]
    output_parsed: O | None = None

    @property
    def session_id(self) -> str:
        """The session's."""
        return str(self.turn.session_id)

    @property
    def turn_id(self) -> str:
        """The turn's."""
        return str(self.turn.id)

    @property
    def output_text(self) -> str:
        """The texts of the final messages, one after the other, with nothing between them."""
        return "".join(message.output_text for message in self.messages)

    def parse(self, output_type: type[Any]) -> AgentTurnResult[Any]:
        """Return the result with its text read as ``output_type``; what the session asks for stays as it is.

        Raises:
            AgentOutputParseError: where there is no text, some text does not fit, or the type cannot be read.
        """
        try:
            read = output_decoder(output_type)
            parts = [part for message in self.messages for part in message.content or ()]
            parsed = [read(part.text) for part in parts if part.type == "output_text"]
        except Exception:  # noqa: BLE001  # what it says may quote the answer
            parsed = []
        if not parsed:
            raise AgentOutputParseError(self)
        return AgentTurnResult(self.turn, self.messages, parsed[0])


class AgentOutputParseError(OpenAIError):
    """A turn ended well, and its answer is not of the type that was asked for.

    Attributes:
        result: the turn's, with the answer as text.
    """

    def __init__(self, result: AgentTurnResult[Any]) -> None:
        super().__init__("Could not parse the agent's output as the type that was asked for; see `result`")
        self.result = result


class AgentTurnResultError(OpenAIError):
    """No complete result of a turn that ended well could be collected; the turn itself may go on.

    Attributes:
        reason: ``failed``, ``cancelled``: how the turn ended; ``requires_action``: it waits for a tool that
            has no handler; ``incomplete``: the events ended first; ``observation_failed``: reading
            them, or handing in a tool's output, failed: the cause says how.
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
    """What the first turn of the main agent has come to, event by event; no input, no output."""

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
        """Take in what an event tells; after the turn's end, nothing."""
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
        """Return why there is no result; the first reason stays."""
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
        """Raise where it is known already that there will be no result.

        Args:
            handled: the names of the tools that there are handlers for.

        Raises:
            AgentTurnResultError: with its reason.
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
        """Return the result, the same one each time.

        Raises:
            AgentTurnResultError: where there is none.
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
    """Return an open object that does not change when the event it came in does."""
    return value.model_copy(deep=True) if isinstance(value, OpenObject) else value


class OnDemandCollector:
    """Collects a result where one is wanted: who only iterates over the events pays nothing for it.

    Args:
        session_id: where it is known beforehand.
        output_type: what the result's text is read as; None leaves it text.

    Raises:
        TypeError: for an ``output_type`` that is neither a pydantic model nor a dataclass.
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
        """Return the collector, which begins to collect when it is first asked for.

        Raises:
            RuntimeError: where events have passed by before.
        """
        if self._collector is None:
            if self._started:
                raise RuntimeError(
                    "events were read before a result was asked for; call with_result_collection() before "
                    "the first one, or get_final_result() on a fresh stream"
                )
            self._collector = TurnResultCollector(self._session_id)
        return self._collector

    def feed(self, event: Any) -> None:
        """Take in an event."""
        self._started = True
        if self._collector is not None:
            self._collector.feed(event)

    def failed(self, error: Exception) -> None:
        """Note that the events cannot be followed further."""
        if self._collector is not None and not self._collector.is_done:
            self._collector.cause = error

    def result(self) -> AgentTurnResult[Any]:
        """Return the result, read as the output type where there is one.

        Raises:
            AgentTurnResultError: where there is none.
            AgentOutputParseError: where its text does not fit.
        """
        result = self.collector().result()
        if self._output_type is None:
            return result
        if self._parsed is None:
            self._parsed = result.parse(self._output_type)
        return self._parsed
