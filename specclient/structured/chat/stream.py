"""Streams returned by ``chat.completions.stream``: events, then the parsed completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic

from specclient.call.stream import AsyncStream, Stream
from specclient.providers.usage import completion_usage
from specclient.structured.chat.events import ChatCompletionStreamEvent, ResponseFormatT
from specclient.structured.chat.state import ChatCompletionStreamState
from specclient.structured.event_stream import (
    AsyncEventStream,
    AsyncRequest,
    AsyncStreamManager,
    EventStream,
    StreamManager,
)
from specclient.structured.tools import ToolMapping
from specclient.types.chat import ChatCompletionChunk, ParsedChatCompletion


class ChatCompletionStream(EventStream[ChatCompletionStreamEvent[ResponseFormatT]], Generic[ResponseFormatT]):
    """The events of one chat completion: ``for event in stream``.

    Args:
        raw_stream: the stream of chunks.
        response_format: the type of the parsed text; see :func:`specclient.structured.parse_chat_completion`.
        input_tools: the request's tools; calls of strict tools are parsed.
    """

    def __init__(
        self,
        *,
        raw_stream: Stream[ChatCompletionChunk],
        response_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
    ) -> None:
        self._state = _state(response_format, input_tools)
        super().__init__(raw_stream, _handler(self._state))

    @property
    def current_completion_snapshot(self) -> ParsedChatCompletion[Any]:
        """The completion so far. The same object is updated by every chunk."""
        return self._state.current_completion_snapshot

    def get_final_completion(self) -> ParsedChatCompletion[ResponseFormatT]:
        """Read all remaining events, and return the parsed completion.

        Raises:
            LengthFinishReasonError: a choice was truncated.
            ContentFilterFinishReasonError: a choice was filtered.
            pydantic.ValidationError: a text is not valid for its type.
            APIError: the stream ended with an error.
        """
        return _final(self.until_done(), self._state)


class AsyncChatCompletionStream(
    AsyncEventStream[ChatCompletionStreamEvent[ResponseFormatT]], Generic[ResponseFormatT]
):
    """The events of one chat completion: ``async for event in stream``. See :class:`ChatCompletionStream`."""

    def __init__(
        self,
        *,
        raw_stream: AsyncStream[ChatCompletionChunk],
        response_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
    ) -> None:
        self._state = _state(response_format, input_tools)
        super().__init__(raw_stream, _handler(self._state))

    @property
    def current_completion_snapshot(self) -> ParsedChatCompletion[Any]:
        """The completion so far. The same object is updated by every chunk."""
        return self._state.current_completion_snapshot

    async def get_final_completion(self) -> ParsedChatCompletion[ResponseFormatT]:
        """Read all remaining events, and return the parsed completion.

        It raises the same errors as :meth:`ChatCompletionStream.get_final_completion`.
        """
        return _final(await self.until_done(), self._state)


class ChatCompletionStreamManager(
    StreamManager[ChatCompletionStream[ResponseFormatT]], Generic[ResponseFormatT]
):
    """Context manager returned by ``chat.completions.stream`` of the synchronous client.

    Args:
        api_request: sends the request and returns its stream.
        response_format, input_tools: see :class:`ChatCompletionStream`.
    """

    def __init__(
        self,
        api_request: Callable[[], Stream[ChatCompletionChunk]],
        *,
        response_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
    ) -> None:
        wrap = partial(
            ChatCompletionStream[ResponseFormatT], response_format=response_format, input_tools=input_tools
        )
        super().__init__(api_request, wrap)


class AsyncChatCompletionStreamManager(
    AsyncStreamManager[AsyncChatCompletionStream[ResponseFormatT]], Generic[ResponseFormatT]
):
    """Context manager returned by ``chat.completions.stream`` of the asynchronous client.

    Args:
        api_request: an awaitable that sends the request, or a function that returns one; see
            :class:`.AsyncStreamManager`.
        response_format, input_tools: see :class:`ChatCompletionStream`.
    """

    def __init__(
        self,
        api_request: AsyncRequest,
        *,
        response_format: Any = None,
        input_tools: Iterable[ToolMapping] | Any = None,
    ) -> None:
        wrap = partial(
            AsyncChatCompletionStream[ResponseFormatT],
            response_format=response_format,
            input_tools=input_tools,
        )
        super().__init__(api_request, wrap)


def _state(response_format: Any, input_tools: Any) -> ChatCompletionStreamState[Any]:
    return ChatCompletionStreamState(response_format=response_format, input_tools=input_tools)


def _handler(state: ChatCompletionStreamState[Any]) -> Callable[[ChatCompletionChunk], list[Any]]:
    def handle(chunk: ChatCompletionChunk) -> list[Any]:
        # Azure's asynchronous content filter sends objects that are not chunks.
        return state.handle_chunk(chunk) if chunk.object in (None, "chat.completion.chunk") else []

    return handle


def _final(stream: Any, state: ChatCompletionStreamState[Any]) -> ParsedChatCompletion[Any]:
    final = state.get_final_completion()
    call = stream.meta
    final.attach_meta(call)
    if final.usage is None and call is not None:  # its chunk was requested for the call's record alone
        final.usage = completion_usage(call.usage)
    return final
