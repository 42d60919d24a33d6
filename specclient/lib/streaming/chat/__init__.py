"""The names of the OpenAI client's ``lib.streaming.chat``."""

from specclient.structured.chat.events import (
    ChatCompletionStreamEvent,
    ChunkEvent,
    ContentDeltaEvent,
    ContentDoneEvent,
    FunctionToolCallArgumentsDeltaEvent,
    FunctionToolCallArgumentsDoneEvent,
    LogprobsContentDeltaEvent,
    LogprobsContentDoneEvent,
    LogprobsRefusalDeltaEvent,
    LogprobsRefusalDoneEvent,
    ParsedChatCompletionMessageSnapshot,
    ParsedChatCompletionSnapshot,
    ParsedChoiceSnapshot,
    RefusalDeltaEvent,
    RefusalDoneEvent,
)
from specclient.structured.chat.state import ChatCompletionStreamState
from specclient.structured.chat.stream import (
    AsyncChatCompletionStream,
    AsyncChatCompletionStreamManager,
    ChatCompletionStream,
    ChatCompletionStreamManager,
)

__all__ = [
    "AsyncChatCompletionStream",
    "AsyncChatCompletionStreamManager",
    "ChatCompletionStream",
    "ChatCompletionStreamEvent",
    "ChatCompletionStreamManager",
    "ChatCompletionStreamState",
    "ChunkEvent",
    "ContentDeltaEvent",
    "ContentDoneEvent",
    "FunctionToolCallArgumentsDeltaEvent",
    "FunctionToolCallArgumentsDoneEvent",
    "LogprobsContentDeltaEvent",
    "LogprobsContentDoneEvent",
    "LogprobsRefusalDeltaEvent",
    "LogprobsRefusalDoneEvent",
    "ParsedChatCompletionMessageSnapshot",
    "ParsedChatCompletionSnapshot",
    "ParsedChoiceSnapshot",
    "RefusalDeltaEvent",
    "RefusalDoneEvent",
]
