"""Chat completions and what they take, for type checkers; what is not listed is an open object."""

from typing import Any

from specclient.types.chat.chat_completion import (
    ChatCompletion as ChatCompletion,
)
from specclient.types.chat.chat_completion_chunk import (
    ChatCompletionChunk as ChatCompletionChunk,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionAudio as ChatCompletionAudio,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessage as ChatCompletionMessage,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessageCustomToolCall as ChatCompletionMessageCustomToolCall,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessageFunctionToolCall as ChatCompletionMessageFunctionToolCall,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessageToolCall as ChatCompletionMessageToolCall,
)
from specclient.types.chat.chat_completion_message import (
    ChatCompletionMessageToolCallUnion as ChatCompletionMessageToolCallUnion,
)
from specclient.types.chat.completion_params import (
    CompletionCreateParams as CompletionCreateParams,
)
from specclient.types.chat.completion_params import (
    CompletionListParams as CompletionListParams,
)
from specclient.types.chat.completion_params import (
    CompletionUpdateParams as CompletionUpdateParams,
)
from specclient.types.chat.logprobs import (
    ChatCompletionTokenLogprob as ChatCompletionTokenLogprob,
)
from specclient.types.chat.message_params import (
    ChatCompletionAssistantMessageParam as ChatCompletionAssistantMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionContentPartImageParam as ChatCompletionContentPartImageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionContentPartInputAudioParam as ChatCompletionContentPartInputAudioParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionContentPartParam as ChatCompletionContentPartParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionContentPartRefusalParam as ChatCompletionContentPartRefusalParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionContentPartTextParam as ChatCompletionContentPartTextParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionDeveloperMessageParam as ChatCompletionDeveloperMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionFunctionMessageParam as ChatCompletionFunctionMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionMessageCustomToolCallParam as ChatCompletionMessageCustomToolCallParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionMessageFunctionToolCallParam as ChatCompletionMessageFunctionToolCallParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionMessageParam as ChatCompletionMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionMessageToolCallParam as ChatCompletionMessageToolCallParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionMessageToolCallUnionParam as ChatCompletionMessageToolCallUnionParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionSystemMessageParam as ChatCompletionSystemMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionToolMessageParam as ChatCompletionToolMessageParam,
)
from specclient.types.chat.message_params import (
    ChatCompletionUserMessageParam as ChatCompletionUserMessageParam,
)
from specclient.types.chat.message_params import (
    CreateChatCompletionRequestMessageParam as CreateChatCompletionRequestMessageParam,
)
from specclient.types.chat.parsed_chat_completion import (
    ParsedChatCompletion as ParsedChatCompletion,
)
from specclient.types.chat.parsed_chat_completion import (
    ParsedChatCompletionMessage as ParsedChatCompletionMessage,
)
from specclient.types.chat.parsed_chat_completion import (
    ParsedChoice as ParsedChoice,
)
from specclient.types.chat.parsed_chat_completion import (
    ParsedFunction as ParsedFunction,
)
from specclient.types.chat.parsed_chat_completion import (
    ParsedFunctionToolCall as ParsedFunctionToolCall,
)
from specclient.types.chat.stored import (
    ChatCompletionContentPartImage as ChatCompletionContentPartImage,
)
from specclient.types.chat.stored import (
    ChatCompletionContentPartText as ChatCompletionContentPartText,
)
from specclient.types.chat.stored import (
    ChatCompletionDeleted as ChatCompletionDeleted,
)
from specclient.types.chat.stored import (
    ChatCompletionFunctionTool as ChatCompletionFunctionTool,
)
from specclient.types.chat.stored import (
    ChatCompletionStoreMessage as ChatCompletionStoreMessage,
)
from specclient.types.chat.tool_params import (
    ChatCompletionAllowedToolChoiceParam as ChatCompletionAllowedToolChoiceParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionAllowedToolsParam as ChatCompletionAllowedToolsParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionAudioParam as ChatCompletionAudioParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionCustomToolParam as ChatCompletionCustomToolParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionFunctionCallOptionParam as ChatCompletionFunctionCallOptionParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionFunctionToolParam as ChatCompletionFunctionToolParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionModality as ChatCompletionModality,
)
from specclient.types.chat.tool_params import (
    ChatCompletionNamedToolChoiceCustomParam as ChatCompletionNamedToolChoiceCustomParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionNamedToolChoiceParam as ChatCompletionNamedToolChoiceParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionPredictionContentParam as ChatCompletionPredictionContentParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionReasoningEffort as ChatCompletionReasoningEffort,
)
from specclient.types.chat.tool_params import (
    ChatCompletionRole as ChatCompletionRole,
)
from specclient.types.chat.tool_params import (
    ChatCompletionStreamOptionsParam as ChatCompletionStreamOptionsParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionToolChoiceOptionParam as ChatCompletionToolChoiceOptionParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionToolParam as ChatCompletionToolParam,
)
from specclient.types.chat.tool_params import (
    ChatCompletionToolUnionParam as ChatCompletionToolUnionParam,
)

def __getattr__(name: str) -> Any: ...
