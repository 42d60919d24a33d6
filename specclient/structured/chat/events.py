"""Events of a streamed chat completion, named as in the OpenAI client's ``lib.streaming.chat``.

Fields: https://github.com/openai/openai-python/blob/main/helpers.md#chat-completions-events
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeAliasType

from specclient.structured.construction import LazyFieldsModel
from specclient.types.base import WireModel
from specclient.types.chat import (
    ChatCompletionChunk,
    ChatCompletionTokenLogprob,
    ParsedChatCompletion,
    ParsedChatCompletionMessage,
    ParsedChoice,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ResponseFormatT = TypeVar("ResponseFormatT", default=None)  # without a format, ``parsed`` is None
else:
    from typing import TypeVar

    ResponseFormatT = TypeVar("ResponseFormatT")  # no default: pydantic would validate values against it

#: The completion received so far. The same object is updated from the first event to the last.
ParsedChatCompletionSnapshot = ParsedChatCompletion
ParsedChatCompletionMessageSnapshot = ParsedChatCompletionMessage
ParsedChoiceSnapshot = ParsedChoice


class ChunkEvent(LazyFieldsModel):
    """An unmodified chunk, and the completion so far."""

    live = frozenset({"snapshot"})

    type: Literal["chunk"]
    chunk: ChatCompletionChunk
    snapshot: ParsedChatCompletion[Any]


class ContentDeltaEvent(LazyFieldsModel):
    """New text (``delta``), the text so far (``snapshot``), and its value as incomplete JSON (``parsed``)."""

    type: Literal["content.delta"]
    delta: str
    snapshot: str
    parsed: object | None = None


class ContentDoneEvent(WireModel, Generic[ResponseFormatT]):
    """The complete text, and its parsed value."""

    type: Literal["content.done"]
    content: str
    parsed: ResponseFormatT | None = None


class RefusalDeltaEvent(WireModel):
    """New text of a refusal, and the refusal so far."""

    type: Literal["refusal.delta"]
    delta: str
    snapshot: str


class RefusalDoneEvent(WireModel):
    """The complete refusal."""

    type: Literal["refusal.done"]
    refusal: str


class FunctionToolCallArgumentsDeltaEvent(LazyFieldsModel):
    """New text of a tool call's arguments; ``arguments`` and ``parsed_arguments`` hold all so far."""

    type: Literal["tool_calls.function.arguments.delta"]
    name: str
    index: int
    arguments: str
    parsed_arguments: object | None
    arguments_delta: str


class FunctionToolCallArgumentsDoneEvent(WireModel):
    """A complete tool call."""

    type: Literal["tool_calls.function.arguments.done"]
    name: str
    index: int
    arguments: str
    parsed_arguments: object | None


class LogprobsContentDeltaEvent(LazyFieldsModel):
    """Log probabilities of the new tokens of the text, and of all its tokens so far."""

    type: Literal["logprobs.content.delta"]
    content: list[ChatCompletionTokenLogprob]
    snapshot: list[ChatCompletionTokenLogprob]


class LogprobsContentDoneEvent(WireModel):
    """Log probabilities of all tokens of the text."""

    type: Literal["logprobs.content.done"]
    content: list[ChatCompletionTokenLogprob]


class LogprobsRefusalDeltaEvent(LazyFieldsModel):
    """Log probabilities of the new tokens of the refusal, and of all its tokens so far."""

    type: Literal["logprobs.refusal.delta"]
    refusal: list[ChatCompletionTokenLogprob]
    snapshot: list[ChatCompletionTokenLogprob]


class LogprobsRefusalDoneEvent(WireModel):
    """Log probabilities of all tokens of the refusal."""

    type: Literal["logprobs.refusal.done"]
    refusal: list[ChatCompletionTokenLogprob]


ChatCompletionStreamEvent = TypeAliasType(
    "ChatCompletionStreamEvent",
    ChunkEvent
    | ContentDeltaEvent
    | ContentDoneEvent[ResponseFormatT]
    | RefusalDeltaEvent
    | RefusalDoneEvent
    | FunctionToolCallArgumentsDeltaEvent
    | FunctionToolCallArgumentsDoneEvent
    | LogprobsContentDeltaEvent
    | LogprobsContentDoneEvent
    | LogprobsRefusalDeltaEvent
    | LogprobsRefusalDoneEvent,
    type_params=(ResponseFormatT,),
)
