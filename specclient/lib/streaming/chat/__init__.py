"""The names of the OpenAI client's ``lib.streaming.chat``."""

from specclient.structured.chat_events import (
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
from specclient.structured.chat_state import ChatCompletionStreamState
from specclient.structured.chat_stream import (
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
