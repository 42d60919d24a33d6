"""Streams returned by ``responses.stream``: events, then the parsed response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from specclient.call.stream import AsyncStream, Stream
from specclient.structured.event_stream import (
    AsyncEventStream,
    AsyncRequest,
    AsyncStreamManager,
    EventStream,
    StreamManager,
)
from specclient.structured.responses.events import ResponseStreamEvent, TextFormatT
from specclient.structured.responses.state import ResponseStreamState
from specclient.structured.tools import ToolMapping
from specclient.types.responses.parsed_response import ParsedResponse


class ResponseStream(EventStream[ResponseStreamEvent[TextFormatT]], Generic[TextFormatT]):
    """The events of one response: ``for event in stream``.

    Args:
        raw_stream: the stream of the API's events.
        text_format: the type of the parsed texts; see :func:`specclient.structured.parse_response`.
        input_tools: the request's tools; calls of strict tools are parsed.
        starting_after: a sequence number; events up to it are accumulated but not returned.
    """

    def __init__(
        self,
        *,
        raw_stream: Stream[Any],
        text_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
        starting_after: int | None = None,
    ) -> None:
        self._state = _state(text_format, input_tools)
        super().__init__(raw_stream, _handler(self._state, starting_after))

    def get_final_response(self) -> ParsedResponse[TextFormatT]:
        """Read all remaining events, and return the parsed response.

        Raises:
            RuntimeError: the response was not completed.
            pydantic.ValidationError: a text is not valid for its type.
            APIError: the stream ended with an error.
        """
        return _final(self.until_done(), self._state)


class AsyncResponseStream(AsyncEventStream[ResponseStreamEvent[TextFormatT]], Generic[TextFormatT]):
    """The events of one response: ``async for event in stream``. See :class:`ResponseStream`."""

    def __init__(
        self,
        *,
        raw_stream: AsyncStream[Any],
        text_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
        starting_after: int | None = None,
    ) -> None:
        self._state = _state(text_format, input_tools)
        super().__init__(raw_stream, _handler(self._state, starting_after))

    async def get_final_response(self) -> ParsedResponse[TextFormatT]:
        """Read all remaining events, and return the parsed response.

        It raises the same errors as :meth:`ResponseStream.get_final_response`.
        """
        return _final(await self.until_done(), self._state)


class ResponseStreamManager(StreamManager[ResponseStream[TextFormatT]], Generic[TextFormatT]):
    """Context manager returned by ``responses.stream`` of the synchronous client.

    Args:
        api_request: sends the request and returns its stream.
        text_format, input_tools, starting_after: see :class:`ResponseStream`.
    """

    def __init__(
        self,
        api_request: Callable[[], Stream[Any]],
        *,
        text_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
        starting_after: int | None = None,
    ) -> None:
        wrap = partial(
            ResponseStream[TextFormatT],
            text_format=text_format,
            input_tools=input_tools,
            starting_after=starting_after,
        )
        super().__init__(api_request, wrap)


class AsyncResponseStreamManager(AsyncStreamManager[AsyncResponseStream[TextFormatT]], Generic[TextFormatT]):
    """Context manager returned by ``responses.stream`` of the asynchronous client.

    Args:
        api_request: an awaitable that sends the request, or a function that returns one; see
            :class:`.AsyncStreamManager`.
        text_format, input_tools, starting_after: see :class:`ResponseStream`.
    """

    def __init__(
        self,
        api_request: AsyncRequest,
        *,
        text_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
        starting_after: int | None = None,
    ) -> None:
        wrap = partial(
            AsyncResponseStream[TextFormatT],
            text_format=text_format,
            input_tools=input_tools,
            starting_after=starting_after,
        )
        super().__init__(api_request, wrap)


def _state(text_format: Any, input_tools: Any) -> ResponseStreamState[Any]:
    return ResponseStreamState(text_format=text_format, input_tools=input_tools)


def _handler(state: ResponseStreamState[Any], after: int | None) -> Callable[[Any], list[Any]]:
    def handle(event: Any) -> list[Any]:
        events = state.handle_event(event)
        return events if after is None else [one for one in events if one.sequence_number > after]

    return handle


def _final(stream: Any, state: ResponseStreamState[Any]) -> ParsedResponse[Any]:
    if state.completed is None:
        last = f"its last event was `{state.last}`" if state.last else "it sent no event"
        raise RuntimeError(f"Didn't receive a `response.completed` event: the stream ended, and {last}.")
    with suppress(AttributeError):  # an existing response, which is followed without a call to a model
        state.completed.attach_meta(stream.meta)
    return state.completed
