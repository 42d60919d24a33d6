"""Streams of one turn of a hosted agent: send input, read the events, run local tools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from specclient.resources.agents.results import (
    AgentOutputParseError,
    AgentTurnResult,
    AgentTurnResultError,
    OnDemandCollector,
    nested_attribute,
)
from specclient.resources.agents.tool_calls import AgentToolError, ToolCallRunner
from specclient.resources.step_methods import Steps, run_steps, run_steps_async
from specclient.types.params import NOT_GIVEN, is_given

#: How many event ids are remembered to detect repeated events; repetitions are close to each other.
_RECENT = 1024
_TURN_ENDS = frozenset({f"agent.session.turn.{end}" for end in ("completed", "failed", "cancelled")})


class TurnEndDetector:
    """Detects repeated events and the last event of a turn; no I/O."""

    def __init__(self) -> None:
        self._turn_id: str | None = None
        self._ended = False
        self._ids: set[str] = set()
        self._order: deque[str] = deque()

    def is_new(self, event: Any) -> bool:
        """Record an event, and return whether it is new."""
        event_id = nested_attribute(event, "event_id")
        if event_id in self._ids:
            return False
        if len(self._order) == _RECENT:
            self._ids.remove(self._order.popleft())
        self._order.append(event_id)
        self._ids.add(event_id)
        if nested_attribute(event, "type") == "agent.session.turn.created":
            if self._turn_id is None and nested_attribute(event, "turn", "subagent_id") is None:
                self._turn_id = event.turn_id
        elif nested_attribute(event, "type") in _TURN_ENDS and event.turn_id == self._turn_id:
            self._ended = True
        return True

    def is_last(self, event: Any) -> bool:
        """Return whether the session waits for input again, or has failed."""
        kind = nested_attribute(event, "type")
        return kind == "agent.session.failed" or (kind == "agent.session.idle" and self._ended)


class ResultCollectionMixin:
    """Result collection of session streams, as steps for both clients."""

    watch: OnDemandCollector
    calls: ToolCallRunner

    def with_result_collection(self) -> Self:
        """Collect the final messages for :meth:`get_final_result`; call it before reading any event."""
        self.watch.collector()
        return self

    def _final(self, next_event: Callable[[], Steps], close: Callable[[], Steps]) -> Steps:
        """Read to the end of the turn, close the stream, and return the result.

        Args:
            next_event: returns the next event; None at the end.
            close: closes the stream.
        """
        collector = self.watch.collector()
        try:
            collector.check(self.calls.handlers)
            while not collector.is_done and (yield from next_event()) is not None:
                collector.check(self.calls.handlers)
            return self.watch.result()
        except (AgentTurnResultError, AgentOutputParseError):
            raise
        except Exception as error:
            self.watch.failed(error)
            raise collector.error("observation_failed") from error
        finally:
            yield from close()


class _TurnStream(ResultCollectionMixin):
    """The steps that both turn streams share; see :class:`AgentSessionStream`."""

    def __init__(
        self,
        sessions: Any,
        session_id: str,
        *,
        input: str | Iterable[Any],  # noqa: A002  # the API's name
        output_type: type[Any] | None = None,
        tool_handlers: Mapping[str, Callable[..., Any]] | None = None,
        on_tool_error: Callable[[AgentToolError], Any] | None = None,
        idempotency_key: Any = NOT_GIVEN,
        extra_headers: Mapping[str, Any] | None = None,
        timeout: Any = NOT_GIVEN,
    ) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._input = _message(input)
        self._options = without_idempotency_key(extra_headers, timeout)
        self._key = _input_key(idempotency_key, extra_headers)
        self.calls = ToolCallRunner(sessions, tool_handlers, on_error=on_tool_error, options=self._options)
        self.watch = OnDemandCollector(session_id, output_type)
        self._end = TurnEndDetector()
        self._pending: Any = None
        self._stream: Any = None
        self._fetch: Callable[[], Any] | None = None
        self._entered = False
        self._closed = False

    def _enter(self) -> Steps:
        """Open the event stream first, then send the input, so that no event is missed."""
        if self._entered or self._closed:
            raise RuntimeError("this stream was opened before; make another one with sessions.stream")
        self._entered = True
        session = yield self._sessions.retrieve(self._session_id, **self._options)
        if session.status != "idle":
            raise ValueError(
                f"session {self._session_id} is {session.status!r}, and only an idle one takes input here; "
                "follow it with sessions.events.stream"
            )
        self._stream = yield self._sessions.events.stream(self._session_id, **self._options)
        try:
            yield self._sessions.events.create(
                self._session_id, events=[self._input], idempotency_key=self._key, **self._options
            )
        except BaseException:
            yield from self._close()
            raise
        self._fetch = partial(anext if self._sessions.is_async else next, self._stream, None)
        return self

    def _next(self) -> Steps:
        """Run the tool call of the previous event, if any, and return the next event; None at the end."""
        if self._closed:
            return None
        if self._fetch is None:
            raise RuntimeError("the stream is not open; use sessions.stream(…) in a with block")
        try:
            if self._pending is not None:
                call, self._pending = self._pending, None
                yield from self.calls.answer(call)
            event = yield self._fetch()
            while event is not None and not self._end.is_new(event):
                event = yield self._fetch()
            if event is None and not self._closed:
                raise RuntimeError("Session event stream ended before the turn reached idle or failed")  # noqa: TRY301
        except BaseException as error:
            if isinstance(error, Exception):
                self.watch.failed(error)
            yield from self._close()
            raise
        if event is None:
            return None
        self.watch.feed(event)
        if self._end.is_last(event):
            yield from self._close()
        else:
            self._pending = self.calls.pending(event)
        return event

    def _close(self) -> Steps:
        self._closed = True
        self._pending = None
        if self._stream is not None:
            yield self._stream.close()

    def _all(self) -> Steps:
        while (yield from self._next()) is not None:
            pass


class AgentSessionStream(_TurnStream):
    """The events of one turn of an idle session: ``with client.beta.agents.sessions.stream(…) as stream``.

    No other input may be sent to the session meanwhile. Iteration ends when the session waits for input again
    or has failed; leaving early does not cancel the turn. Tools with handlers run one after the other, when
    iteration continues after the event of their call; the caller must answer other calls. A handler is called
    with a dict of its arguments; if it fails, the model learns only that.

    Raises:
        ValueError: the session is not idle.
        RuntimeError: the events ended before the turn.
        OpenAIError: a request failed, which may be the one that sends a tool's result.
    """

    def __enter__(self) -> Self:
        run_steps(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        event = run_steps(self._next())
        if event is None:
            raise StopIteration
        return event

    def until_done(self) -> None:
        """Read to the end of the turn, and run the tools that it calls."""
        run_steps(self._all())

    def get_final_result(self) -> AgentTurnResult[Any]:
        """Read to the end of the turn, run the tools that it calls, and return the result.

        Raises:
            AgentTurnResultError: the turn was not completed, or its events could not all be read.
            AgentOutputParseError: the output does not match ``output_type``.
            RuntimeError: events were read before, without :meth:`with_result_collection`.
        """
        result: AgentTurnResult[Any] = run_steps(self._final(self._next, self._close))
        return result

    def close(self) -> None:
        """Close the event stream; the turn continues."""
        run_steps(self._close())


class AsyncAgentSessionStream(_TurnStream):
    """The asynchronous :class:`AgentSessionStream`; handlers may also be coroutine functions."""

    async def __aenter__(self) -> Self:
        await run_steps_async(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        event = await run_steps_async(self._next())
        if event is None:
            raise StopAsyncIteration
        return event

    async def until_done(self) -> None:
        """Read to the end of the turn, and run the tools that it calls."""
        await run_steps_async(self._all())

    async def get_final_result(self) -> AgentTurnResult[Any]:
        """Read to the end, and return the result; see :meth:`AgentSessionStream.get_final_result`."""
        result: AgentTurnResult[Any] = await run_steps_async(self._final(self._next, self._close))
        return result

    async def close(self) -> None:
        """Close the event stream; the turn continues."""
        await run_steps_async(self._close())


def without_idempotency_key(headers: Mapping[str, Any] | None, timeout: Any) -> dict[str, Any]:
    """Return request options without an idempotency key, which applies only to the turn's input."""
    if headers is not None:
        headers = {name: value for name, value in headers.items() if name.lower() != "idempotency-key"}
    return {"extra_headers": headers, "timeout": timeout}


def _input_key(given: Any, headers: Mapping[str, Any] | None) -> Any:
    """Return the input's idempotency key: the one in the headers, else the given one, else a new one."""
    for name, value in (headers or {}).items():
        if name.lower() == "idempotency-key":
            return value
    return given if is_given(given) else str(uuid4())


def _message(given: str | Iterable[Any]) -> dict[str, Any]:
    """Return the input event for a text or for a list of the API's messages.

    Raises:
        ValueError: the input is empty.
    """
    if isinstance(given, str):
        content = [{"type": "input_text", "text": given}]
        messages: list[Any] = [{"role": "user", "content": content}] if given else []
    else:
        messages = list(given)
    if not messages:
        raise ValueError("input must not be empty; give a text, or a list of messages")
    return {"type": "agent.session.input.message", "input": messages}
