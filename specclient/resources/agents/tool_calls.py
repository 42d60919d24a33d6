"""Runs the handlers of a hosted agent's local tool calls, and sends their outputs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from specclient.errors import BadRequestError
from specclient.providers.encoding import json_of
from specclient.resources.agents.function_tools import FunctionTool, ToolStage, discard_awaitable
from specclient.resources.agents.results import nested_attribute
from specclient.resources.step_methods import SleepStep, Steps
from specclient.types.open import OpenObject

#: Seconds between attempts to send a result while the server does not have its call yet.
_WAITS_S = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class AgentToolError:
    """The failure of a local tool, for ``on_tool_error``. The model learns only that the tool failed.

    Attributes:
        error: the exception.
        stage: where it was raised: in the ``arguments``, the ``execution`` or the ``output``.
    """

    error: Exception
    tool_name: str
    session_id: str
    turn_id: str
    call_id: str
    stage: ToolStage


@dataclass(frozen=True, slots=True)
class PendingToolCall:
    """A tool call with a handler; ``arguments`` are a copy, so changes to the event do not affect them."""

    handler: Callable[..., Any]
    name: str
    session_id: str
    turn_id: str
    call_id: str
    arguments: Any


class ToolCallRunner:
    """Finds tool calls with handlers among a session's events, and runs each call once.

    Args:
        sessions: the sessions resource; results are sent to its ``events``.
        handlers: the handlers by tool name.
        on_error: called with an :class:`AgentToolError` when a tool fails; its exceptions are ignored.
        options: ``extra_headers`` and ``timeout`` of the requests that send results.
        new_key: returns a new idempotency key.
    """

    def __init__(
        self,
        sessions: Any,
        handlers: Mapping[str, Callable[..., Any]] | None,
        *,
        on_error: Callable[[AgentToolError], Any] | None = None,
        options: Mapping[str, Any],
        new_key: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.handlers = dict(handlers or {})
        self._sessions = sessions
        self._on_error = on_error
        self._options = options
        self._new_key = new_key
        self._seen: set[tuple[str, str]] = set()

    def pending(self, event: Any) -> PendingToolCall | None:
        """Return an event's tool call; None if it is not one, has no handler, or was returned before."""
        if (
            nested_attribute(event, "type") != "agent.session.turn.item.added"
            or nested_attribute(event, "item", "type") != "function_call"
        ):
            return None
        item = event.item
        key = (item.turn_id, item.call_id)
        if item.name not in self.handlers or key in self._seen:
            return None
        self._seen.add(key)
        arguments = nested_attribute(item, "arguments")
        if isinstance(arguments, OpenObject):
            arguments = arguments.model_dump(mode="json")
        return PendingToolCall(self.handlers[item.name], item.name, event.session_id, *key, arguments)

    def answer(self, call: PendingToolCall) -> Steps:
        """Run a call's handler, and send its output, or the message that it failed.

        Raises:
            OpenAIError: the result cannot be sent.
        """
        stage: ToolStage = "arguments"

        def at(now: ToolStage) -> None:
            nonlocal stage
            stage = now

        try:
            output = _started(call, at)
            if inspect.isawaitable(output):
                if not self._sessions.is_async:
                    discard_awaitable(output)
                    raise TypeError(f"the handler of {call.name!r} is asynchronous; use AsyncOpenAI")  # noqa: TRY301
                output = yield output
            at("output")
            result = {"success": True, "output": _sendable(output)}
        except Exception as error:  # noqa: BLE001  # the user's code
            result = {"success": False, "error": "Tool handler failed."}
            yield from self._tell(call, error, stage)
        yield from self._post(call, result)

    def _tell(self, call: PendingToolCall, error: Exception, stage: ToolStage) -> Steps:
        if self._on_error is None:
            return
        failure = AgentToolError(error, call.name, call.session_id, call.turn_id, call.call_id, stage)
        try:
            note = self._on_error(failure)
            if not inspect.isawaitable(note):
                return
            if self._sessions.is_async:
                yield note
            else:
                discard_awaitable(note)
        except Exception:  # noqa: BLE001  # an error of the observer must not affect the tool
            return

    def _post(self, call: PendingToolCall, result: Mapping[str, Any]) -> Steps:
        """Send a result, again with the same key if it arrives before the server has stored the call."""
        head = {"type": "agent.session.input.tool_result", "turn_id": call.turn_id, "call_id": call.call_id}
        key = self._new_key()
        for wait in (*_WAITS_S, None):
            try:
                reply = yield self._sessions.events.create(
                    call.session_id, events=[{**head, **result}], idempotency_key=key, **self._options
                )
            except BadRequestError as error:
                if wait is None or not _is_early(error, call.call_id):
                    raise
            else:
                if reply is not None and hasattr(reply, "close"):  # unread, by with_streaming_response
                    yield reply.close()
                return
            yield SleepStep(wait)


def _started(call: PendingToolCall, at: Callable[[ToolStage], None]) -> Any:
    """Call the handler and return its result, which may be awaitable."""
    arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {call.name!r} are not a JSON object")  # noqa: TRY004  # JSON's types
    at("execution")
    handler = call.handler
    if isinstance(handler, FunctionTool) and type(handler).__call__ is FunctionTool.__call__:
        return handler.run(arguments, at)
    return handler(arguments)


def _sendable(output: Any) -> Any:
    """Return a handler's output in the form that the API accepts.

    Raises:
        TypeError, ValueError: the output cannot be converted to JSON.
    """
    if isinstance(output, Mapping):
        return json.dumps(dict(output), separators=(",", ":"))
    if output is None or isinstance(output, str):
        return output
    parts: Iterable[Any] = list(output)
    json_of(parts)
    return parts


def _is_early(error: BadRequestError, call_id: str) -> bool:
    """Return whether a result was refused because the server did not have the call yet."""
    body = error.body if isinstance(error.body, Mapping) else {}
    known = ("invalid_request_error", f"Unknown pending tool call: {call_id}")
    return (body.get("code"), body.get("message")) == known
