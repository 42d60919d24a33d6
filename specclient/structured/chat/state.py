"""State of a streamed chat completion: the completion so far, and the events of each chunk."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Generic

from specclient.errors import (
    APIResponseValidationError,
    ContentFilterFinishReasonError,
    LengthFinishReasonError,
)
from specclient.structured.chat.choice import ChoiceState
from specclient.structured.chat.events import ChatCompletionStreamEvent, ChunkEvent, ResponseFormatT
from specclient.structured.chat.parsing import parsed_completion
from specclient.structured.construction import lazy_event, merge_extras, recast
from specclient.structured.schema import decoder
from specclient.structured.tools import ChatTools, ToolMapping
from specclient.types.chat import ChatCompletionChunk, ParsedChatCompletion


class ChatCompletionStreamState(Generic[ResponseFormatT]):
    """Accumulates chunks. ``chat.completions.stream`` uses it; it can also be used directly.

    The time for a chunk depends on the chunk's size, not on the text before it: values that need the whole
    text so far (its incomplete JSON) are computed when an event's field is read.

    Args:
        input_tools: the request's tools; calls of strict tools are parsed.
        response_format: the type of the parsed text; see :func:`specclient.structured.parse_chat_completion`.
    """

    def __init__(
        self, *, input_tools: Iterable[ToolMapping] | Any = None, response_format: Any = None
    ) -> None:
        self._tools = ChatTools(input_tools)
        self._decode = decoder(response_format)
        self._parses = self._decode is not None or self._tools.parseable
        self._completion: ParsedChatCompletion[Any] | None = None
        self._choices: dict[int, ChoiceState] = {}

    @property
    def current_completion_snapshot(self) -> ParsedChatCompletion[Any]:
        """The completion so far. The same object is updated by every chunk.

        Raises:
            APIResponseValidationError: no chunk has been received.
        """
        if self._completion is None:
            raise APIResponseValidationError(
                message="No chunk has been received yet, so there is no completion."
            )
        for choice in self._choices.values():
            choice.show_parsed()
        return self._completion

    def get_final_completion(self) -> ParsedChatCompletion[ResponseFormatT]:
        """Return the parsed completion. Call it when the stream has ended.

        Raises:
            APIResponseValidationError: no chunk has been received.
            LengthFinishReasonError: a choice was truncated.
            ContentFilterFinishReasonError: a choice was filtered.
            pydantic.ValidationError: a text is not valid for its type.
        """
        return parsed_completion(self.current_completion_snapshot, self._decode, self._tools)

    def handle_chunk(self, chunk: ChatCompletionChunk) -> list[ChatCompletionStreamEvent[ResponseFormatT]]:
        """Add ``chunk`` to the completion, and return its events in order.

        Raises:
            LengthFinishReasonError: the response is parsed, and a choice was truncated.
            ContentFilterFinishReasonError: the response is parsed, and a choice was filtered.
            pydantic.ValidationError: a complete text is not valid for its type.
        """
        first = self._completion is None
        completion = self._completion = self._completion or _begun(chunk)
        for piece in chunk.choices or ():
            choice = self._choices.get(piece.index)
            if choice is None:
                choice = self._choices[piece.index] = ChoiceState(piece, self._decode, self._tools)
                completion.choices.append(choice.snapshot)
                completion.choices.sort(key=_place_of)
            else:
                choice.add(piece)
            if not first:
                choice.note(piece)
                self._check_finish(piece.finish_reason, completion)
        if not first:
            _take_totals(completion, chunk)
        events: list[Any] = [
            lazy_event(ChunkEvent, {"snapshot": partial(_snapshot, self)}, type="chunk", chunk=chunk)
        ]
        for piece in chunk.choices or ():
            events.extend(self._choices[piece.index].events(piece))
        return events

    def _check_finish(self, reason: str | None, completion: ParsedChatCompletion[Any]) -> None:
        if self._parses and reason == "length":
            raise LengthFinishReasonError(completion=completion)
        if self._parses and reason == "content_filter":
            raise ContentFilterFinishReasonError(completion=completion)


def _snapshot(state: ChatCompletionStreamState[Any]) -> ParsedChatCompletion[Any]:
    return state.current_completion_snapshot


def _begun(chunk: ChatCompletionChunk) -> ParsedChatCompletion[Any]:
    """Return a completion with the fields of the first chunk, without choices."""
    fingerprint = chunk.system_fingerprint
    fields: dict[str, Any] = {"choices": [], "object": "chat.completion", "system_fingerprint": fingerprint}
    return recast(chunk, ParsedChatCompletion, **fields)


def _place_of(choice: Any) -> int:
    """Return the index of a choice; 0 if the server sent another value."""
    return choice.index if isinstance(choice.index, int) else 0


def _take_totals(completion: ParsedChatCompletion[Any], chunk: ChatCompletionChunk) -> None:
    """Update the completion's top-level fields from a chunk. Fields missing in the chunk keep their value."""
    merge_extras(completion, chunk)
    completion.usage = chunk.usage or completion.usage
    completion.system_fingerprint = chunk.system_fingerprint or completion.system_fingerprint
    moderation = getattr(chunk, "moderation", None)
    if moderation is not None:
        completion.moderation = moderation
