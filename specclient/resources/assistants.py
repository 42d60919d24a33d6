"""Event handlers and stream managers of Assistants runs, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from specclient.errors import APITimeoutError
from specclient.resources.run_snapshots import RunSnapshots

_SHARED = (
    "A single event handler cannot be shared between multiple streams; "
    "You will need to construct a new event handler instance"
)


class _EventHandlerBase:
    """The state and properties that both handlers share."""

    def __init__(self) -> None:
        self._snapshots = RunSnapshots()
        self._stream: Any = None

    def _init(self, stream: Any) -> None:
        if self._stream is not None:
            raise RuntimeError(_SHARED)
        self._stream = stream

    @property
    def current_event(self) -> Any:
        """The event whose hooks are being called."""
        return self._snapshots.event

    @property
    def current_run(self) -> Any:
        """The run in its latest received state."""
        return self._snapshots.run

    @property
    def current_run_step_snapshot(self) -> Any:
        """The current step, as received so far."""
        return self._snapshots.step

    @property
    def current_message_snapshot(self) -> Any:
        """The latest message, as received so far."""
        return self._snapshots.message

    def _final(self, found: Any, message: str) -> Any:
        if not found:
            raise RuntimeError(message)
        return found

    def _started(self) -> Any:
        return self._final(self._stream, "Stream has not been started yet")

    def _run_end(self) -> Any:
        return self._final(self._snapshots.run, "No final run object found")

    def _all_steps(self) -> list[Any]:
        return list(self._final(self._snapshots.steps, "No run steps found").values())

    def _all_messages(self) -> list[Any]:
        return list(self._final(self._snapshots.messages, "No messages found").values())


class AssistantEventHandler(_EventHandlerBase):
    """Calls its hooks for the events of a run. Override the hooks, or iterate over it for the events.

    Attributes:
        text_deltas: an iterator over the pieces of text only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text_deltas = self._texts()
        self._iterator = self._events()

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def _events(self) -> Iterator[Any]:
        try:
            for event in self._started():
                for hook, arguments in self._snapshots.feed(event):
                    getattr(self, hook)(*arguments)
                yield event
        except Exception as error:
            if isinstance(error, APITimeoutError):
                self.on_timeout()
            self.on_exception(error)
            raise
        finally:
            self.on_end()

    def _texts(self) -> Iterator[str]:
        for event in self:
            yield from _texts_of(event)

    def close(self) -> None:
        """Release the connection; leaving the context does so too."""
        if self._stream is not None:
            self._stream.close()

    def until_done(self) -> None:
        """Read the stream to its end."""
        for _ in self:
            pass

    def get_final_run(self) -> Any:
        """Read the stream to its end, and return the run."""
        self.until_done()
        return self._run_end()

    def get_final_run_steps(self) -> list[Any]:
        """Read the stream to its end, and return the steps of the run."""
        self.until_done()
        return self._all_steps()

    def get_final_messages(self) -> list[Any]:
        """Read the stream to its end, and return the messages of the run."""
        self.until_done()
        return self._all_messages()

    def on_event(self, event: Any) -> None:
        """Called for every event, before any other hook."""

    def on_run_step_created(self, run_step: Any) -> None:
        """Called when a step begins."""

    def on_run_step_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a step, with the step as received so far."""

    def on_run_step_done(self, run_step: Any) -> None:
        """Called when a step has ended."""

    def on_tool_call_created(self, tool_call: Any) -> None:
        """Called when a tool call begins."""

    def on_tool_call_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a tool call, with the call as received so far."""

    def on_tool_call_done(self, tool_call: Any) -> None:
        """Called when a tool call is complete."""

    def on_message_created(self, message: Any) -> None:
        """Called when a message begins."""

    def on_message_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a message, with the message as received so far."""

    def on_message_done(self, message: Any) -> None:
        """Called when a message is complete."""

    def on_text_created(self, text: Any) -> None:
        """Called when a text in a message begins."""

    def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of text, with the text as received so far."""

    def on_text_done(self, text: Any) -> None:
        """Called when a text is complete."""

    def on_image_file_done(self, image_file: Any) -> None:
        """Called when an image is complete."""

    def on_exception(self, exception: Exception) -> None:
        """Called with an exception that ends the stream early."""

    def on_timeout(self) -> None:
        """Called when the stream ends with a timeout."""

    def on_end(self) -> None:
        """Called last, whether the stream ended normally or with an exception."""


class AsyncAssistantEventHandler(_EventHandlerBase):
    """The asynchronous version of :class:`AssistantEventHandler`: its hooks are coroutine functions."""

    def __init__(self) -> None:
        super().__init__()
        self.text_deltas = self._texts()
        self._iterator = self._events()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._iterator:
            yield event

    async def __anext__(self) -> Any:
        return await anext(self._iterator)

    async def _events(self) -> AsyncIterator[Any]:
        try:
            async for event in self._started():
                for hook, arguments in self._snapshots.feed(event):
                    await getattr(self, hook)(*arguments)
                yield event
        except Exception as error:
            if isinstance(error, APITimeoutError):
                await self.on_timeout()
            await self.on_exception(error)
            raise
        finally:
            await self.on_end()

    async def _texts(self) -> AsyncIterator[str]:
        async for event in self:
            for text in _texts_of(event):
                yield text

    async def close(self) -> None:
        """Release the connection; leaving the context does so too."""
        if self._stream is not None:
            await self._stream.close()

    async def until_done(self) -> None:
        """Read the stream to its end."""
        async for _ in self:
            pass

    async def get_final_run(self) -> Any:
        """Read the stream to its end, and return the run."""
        await self.until_done()
        return self._run_end()

    async def get_final_run_steps(self) -> list[Any]:
        """Read the stream to its end, and return the steps of the run."""
        await self.until_done()
        return self._all_steps()

    async def get_final_messages(self) -> list[Any]:
        """Read the stream to its end, and return the messages of the run."""
        await self.until_done()
        return self._all_messages()

    async def on_event(self, event: Any) -> None:
        """Called for every event, before any other hook."""

    async def on_run_step_created(self, run_step: Any) -> None:
        """Called when a step begins."""

    async def on_run_step_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a step, with the step as received so far."""

    async def on_run_step_done(self, run_step: Any) -> None:
        """Called when a step has ended."""

    async def on_tool_call_created(self, tool_call: Any) -> None:
        """Called when a tool call begins."""

    async def on_tool_call_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a tool call, with the call as received so far."""

    async def on_tool_call_done(self, tool_call: Any) -> None:
        """Called when a tool call is complete."""

    async def on_message_created(self, message: Any) -> None:
        """Called when a message begins."""

    async def on_message_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of a message, with the message as received so far."""

    async def on_message_done(self, message: Any) -> None:
        """Called when a message is complete."""

    async def on_text_created(self, text: Any) -> None:
        """Called when a text in a message begins."""

    async def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        """Called for a piece of text, with the text as received so far."""

    async def on_text_done(self, text: Any) -> None:
        """Called when a text is complete."""

    async def on_image_file_done(self, image_file: Any) -> None:
        """Called when an image is complete."""

    async def on_exception(self, exception: Exception) -> None:
        """Called with an exception that ends the stream early."""

    async def on_timeout(self) -> None:
        """Called when the stream ends with a timeout."""

    async def on_end(self) -> None:
        """Called last, whether the stream ended normally or with an exception."""


def _texts_of(event: Any) -> Iterator[str]:
    if event.event == "thread.message.delta":
        for piece in getattr(event.data.delta, "content", None) or []:
            if piece.type == "text" and piece.text.value:
                yield piece.text.value


_H = TypeVar("_H", bound=_EventHandlerBase)


class AssistantStreamManager(Generic[_H]):
    """Opens and closes the stream of a run: ``with client.beta.threads.runs.stream(…) as handler``."""

    def __init__(self, send: Callable[[], Any], *, event_handler: _H) -> None:
        self._send = send
        self._handler = event_handler

    def __enter__(self) -> _H:
        self._stream = self._send()
        self._handler._init(self._stream)
        return self._handler

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


class AsyncAssistantStreamManager(Generic[_H]):
    """Opens and closes the stream of a run: ``async with client.beta.threads.runs.stream(…) as handler``."""

    def __init__(self, send: Callable[[], Awaitable[Any]], *, event_handler: _H) -> None:
        self._send = send
        self._handler = event_handler

    async def __aenter__(self) -> _H:
        self._stream = await self._send()
        self._handler._init(self._stream)
        return self._handler

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.close()
