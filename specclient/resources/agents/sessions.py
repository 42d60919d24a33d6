"""Sessions of hosted agents: create and stream them, and run local tools while the events are read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from specclient.call.stream import AsyncStream, Stream
from specclient.resources.agents.output_types import with_output_type
from specclient.resources.agents.results import AgentTurnResult, OnDemandCollector
from specclient.resources.agents.tool_calls import ToolCallRunner
from specclient.resources.agents.turn_stream import (
    AgentSessionStream,
    AsyncAgentSessionStream,
    ResultCollectionMixin,
    without_idempotency_key,
)
from specclient.resources.signatures import bind_arguments
from specclient.resources.step_methods import Steps, run_steps, run_steps_async
from specclient.resources.table.index import rows_of
from specclient.resources.table_resources import request_of
from specclient.types.params import NOT_GIVEN


def create(
    self: Any, *, output_type: Any = None, tool_handlers: Mapping[str, Any] | None = None, **given: Any
) -> Steps:
    """Create a session; with ``stream=True``, stream its events from the first one.

    Args:
        output_type: the type of the agent's output: a pydantic model or a dataclass.
        tool_handlers: functions by tool name; they run while the stream is read.

    Returns:
        An ``AgentSession``; with ``stream=True``, an :class:`AgentSessionEventStream`.

    Raises:
        TypeError: ``output_type`` is neither a pydantic model nor a dataclass.
        ValueError: ``tool_handlers`` is given without a stream, or two output formats are given.
    """
    row = rows_of("beta.agents.sessions")["create"]
    found = bind_arguments(row, (), given)
    agent = with_output_type(found.get("agent", NOT_GIVEN), output_type)
    if tool_handlers is not None and found.get("stream") is not True:
        raise ValueError("tool_handlers needs stream=True: tools are run while the events are read")
    options = without_idempotency_key(found.get("extra_headers"), found.get("timeout", NOT_GIVEN))
    calls = ToolCallRunner(self, tool_handlers, options=options)

    def follow(answer: Any) -> Any:
        watch = OnDemandCollector(output_type=output_type)
        if isinstance(answer, Stream):
            return AgentSessionEventStream(answer, calls, watch)
        return (
            AsyncAgentSessionEventStream(answer, calls, watch) if isinstance(answer, AsyncStream) else answer
        )

    return (yield self.caller.call(request_of(row, {**found, "agent": agent}), follow))


def stream(
    self: Any,
    session_id: str,
    *,
    input: str | Iterable[Any],  # noqa: A002  # the API's name
    output_type: type[Any] | None = None,
    tool_handlers: Mapping[str, Callable[..., Any]] | None = None,
    on_tool_error: Callable[..., Any] | None = None,
    idempotency_key: Any = NOT_GIVEN,
    extra_headers: Mapping[str, Any] | None = None,
    timeout: Any = NOT_GIVEN,
) -> Any:
    """Send input to an idle session, and return a context manager that streams the events of its turn.

    Args:
        input: a text, or a list of the API's messages.
        output_type: the type of ``get_final_result().output_parsed``; the session's output format is
            unchanged.
        tool_handlers: functions by tool name; each is called with a dict of the arguments.
        on_tool_error: called with an :class:`AgentToolError` when a tool fails; its exceptions are ignored.
        idempotency_key: the key of the input; a new one if not given.

    Raises:
        TypeError: ``output_type`` is neither a pydantic model nor a dataclass.
        ValueError: ``input`` is empty.
    """
    kind: Any = AsyncAgentSessionStream if self.is_async else AgentSessionStream
    return kind(
        self,
        session_id,
        input=input,
        output_type=output_type,
        tool_handlers=tool_handlers,
        on_tool_error=on_tool_error,
        idempotency_key=idempotency_key,
        extra_headers=extra_headers,
        timeout=timeout,
    )


class _NewSessionStream(ResultCollectionMixin):
    """The steps that both streams of a new session share."""

    _pending: Any = None
    _closed = False
    _events: Any

    def _advance(self, fetch: Callable[[], Any]) -> Steps:
        """Run the tool call of the previous event, if any, and return the next event; None at the end."""
        try:
            if self._pending is not None and not self._closed:
                call, self._pending = self._pending, None
                yield from self.calls.answer(call)
            event = yield fetch()
        except BaseException as error:
            if isinstance(error, Exception):
                self.watch.failed(error)
            yield from self._shut()
            raise
        if event is not None:
            self.watch.feed(event)
            self._pending = self.calls.pending(event)
        return event

    def _shut(self) -> Steps:
        self._closed = True
        yield self._events.close()


class _RelaySource:
    """A source of a synchronous stream that returns the items of another stream."""

    def __init__(self, stream: Stream[Any]) -> None:
        self._stream = stream

    def next(self) -> Any:
        return next(self._stream)

    def meta(self) -> Any:
        return self._stream.meta

    def async_stream(self) -> AsyncStream[Any]:
        return self._stream.async_stream()

    def keep_captured(self) -> None:
        self._stream.keep_captured()

    def close(self) -> None:
        self._stream.close()

    def cancel_nowait(self) -> None:
        """Do nothing: the other stream handles its own cancellation."""


class AgentSessionEventStream(_NewSessionStream, Stream[Any]):
    """The events of a new session. A tool with a handler runs when iteration continues after its call."""

    def __init__(self, events: Stream[Any], calls: ToolCallRunner, watch: OnDemandCollector) -> None:
        super().__init__(_RelaySource(events))
        self._events, self.calls, self.watch = events, calls, watch

    def __next__(self) -> Any:
        event = run_steps(self._next())
        if event is None:
            raise StopIteration
        return event

    def _next(self) -> Steps:
        return self._advance(partial(next, self._events, None))

    def get_final_result(self) -> AgentTurnResult[Any]:
        """Read to the end of the first turn, and return its result; see :class:`AgentSessionStream`."""
        result: AgentTurnResult[Any] = run_steps(self._final(self._next, self._shut))
        return result

    def close(self) -> None:
        """Close the stream; can be called again. The session continues."""
        run_steps(self._shut())


class AsyncAgentSessionEventStream(_NewSessionStream, AsyncStream[Any]):
    """The asynchronous :class:`AgentSessionEventStream`; handlers may also be coroutine functions."""

    def __init__(self, events: AsyncStream[Any], calls: ToolCallRunner, watch: OnDemandCollector) -> None:
        super().__init__(_batches(events), lambda: events.meta, events.response, events.dialect)
        self._events, self.calls, self.watch = events, calls, watch

    async def __anext__(self) -> Any:
        event = await run_steps_async(self._next())
        if event is None:
            raise StopAsyncIteration
        return event

    def _next(self) -> Steps:
        return self._advance(partial(anext, self._events, None))

    async def get_final_result(self) -> AgentTurnResult[Any]:
        """Read to the end of the first turn, and return its result; see :class:`AgentSessionStream`."""
        result: AgentTurnResult[Any] = await run_steps_async(self._final(self._next, self._shut))
        return result

    async def close(self) -> None:
        """Close the stream; can be called again. The session continues."""
        await run_steps_async(self._shut())


async def _batches(events: AsyncStream[Any]) -> AsyncGenerator[list[Any], None]:
    async for event in events:
        yield [event]
