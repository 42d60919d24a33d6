"""The names of the `openai` package's modules that have no file here, and where they are in this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The names of each module, by our module that defines them; ``Ours=Theirs`` where the names differ.
PATHS: Final[Mapping[str, Mapping[str, str]]] = {
    "_base_client": {
        "client.async_client": "AsyncOpenAI=AsyncAPIClient",
        "client.base_client": "BaseClient",
        "client.options": "DEFAULT_MAX_RETRIES",
        "client.sync_client": "OpenAI=SyncAPIClient",
        "http_transport.clients.defaults": (
            "DEFAULT_CONNECTION_LIMITS DEFAULT_TIMEOUT DefaultAioHttpClient DefaultAsyncHttpxClient "
            "DefaultAsyncHttpxClient=AsyncHttpxClientWrapper DefaultHttpxClient "
            "DefaultHttpxClient=SyncHttpxClientWrapper"
        ),
        "types.pages": (
            "AsyncPageBase=BaseAsyncPage AsyncPaginator BasePage PageInfo SyncPageBase=BaseSyncPage"
        ),
    },
    "_client": {
        "client.async_client": (
            "AsyncOpenAI AsyncOpenAI=AsyncClient AsyncOpenAI=AsyncOpenAIWithRawResponse "
            "AsyncOpenAI=AsyncOpenAIWithStreamedResponse"
        ),
        "client.sync_client": (
            "OpenAI OpenAI=Client OpenAI=OpenAIWithRawResponse OpenAI=OpenAIWithStreamedResponse"
        ),
    },
    "_constants": {
        "client.options": "DEFAULT_MAX_RETRIES",
        "http_transport.clients.defaults": "DEFAULT_CONNECTION_LIMITS DEFAULT_TIMEOUT",
    },
    "_data_residency": {"client.options": "DataResidency"},
    "_exceptions": {
        "errors": (
            "APIConnectionError APIError APIResponseValidationError APIStatusError APITimeoutError "
            "AuthenticationError BadRequestError ConflictError ContentFilterFinishReasonError "
            "InternalServerError InvalidWebhookSignatureError LengthFinishReasonError NotFoundError "
            "OAuthError OpenAIError PermissionDeniedError RateLimitError SubjectTokenProviderError "
            "UnprocessableEntityError WebSocketConnectionClosedError WebSocketQueueFullError"
        ),
    },
    "_legacy_response": {
        "resources.raw_response": "RawResponse=LegacyAPIResponse",
        "types.binary": "HttpxBinaryResponseContent",
    },
    "_models": {"types.base": "WireModel=BaseModel WireModel=GenericModel"},
    "_module_client": {},
    "_resource": {"resources.base": "Resource=AsyncAPIResource Resource=SyncAPIResource"},
    "_response": {
        "resources.raw_response": (
            "AsyncStreamedResponse=AsyncAPIResponse AsyncStreamedResponse=AsyncBinaryAPIResponse "
            "AsyncStreamedResponse=AsyncStreamedBinaryAPIResponse StreamedResponse=APIResponse "
            "StreamedResponse=BinaryAPIResponse StreamedResponse=StreamedBinaryAPIResponse "
            "_UnreadResponse=BaseAPIResponse"
        ),
        "resources.response_forms": (
            "AsyncResponseContext=AsyncResponseContextManager SyncResponseContext=ResponseContextManager"
        ),
    },
    "_streaming": {"call.stream": "AsyncStream Stream", "http_transport.sse": "SSEDecoder ServerSentEvent"},
    "_types": {
        "http_transport.clients.defaults": "ProxiesTypes Timeout Transport URL",
        "types.annotations": (
            "AnyMapping ArrayFormat AsyncBinaryTypes Base64FileInput BinaryTypes Body FileContent FileTypes "
            "Headers HeadersLike ModelT NestedFormat NoneType PostParser Query RequestFiles ResponseT "
            "SequenceNotStr StrBytesIntFloat"
        ),
        "types.params": "NOT_GIVEN NotGiven Omit Omittable RequestOptions not_given omit",
    },
    "_utils": {"resources.file_inputs": "file_from_path", "types.params": "is_given"},
    "_version": {"": "__title__ __version__"},
    "lib._parsing": {
        "structured.chat.parsing": "parse_chat_completion",
        "structured.schema": "chat_format=type_to_response_format_param",
        "types.annotations": "ResponseFormatT",
    },
    "lib._parsing._completions": {
        "structured.chat.parsing": "parse_chat_completion",
        "structured.schema": "chat_format=type_to_response_format_param",
        "types.annotations": "ResponseFormatT",
    },
    "lib._parsing._responses": {
        "structured.responses.parsing": "parse_response",
        "structured.schema": "text_format_param=type_to_text_format_param",
        "types.annotations": "TextFormatT",
    },
    "lib._pydantic": {"structured.schema": "is_model=is_basemodel_type to_strict_json_schema"},
    "lib._tools": {"structured.tools": "pydantic_function_tool pydantic_responses_function_tool"},
    "lib.streaming._assistants": {
        "resources.assistants": (
            "AssistantEventHandler AssistantStreamManager AsyncAssistantEventHandler "
            "AsyncAssistantStreamManager"
        ),
    },
    "lib.streaming._deltas": {"structured.deltas": "accumulate=accumulate_delta"},
    "lib.streaming.chat._completions": {
        "structured.chat.state": "ChatCompletionStreamState",
        "structured.chat.stream": (
            "AsyncChatCompletionStream AsyncChatCompletionStreamManager ChatCompletionStream "
            "ChatCompletionStreamManager"
        ),
    },
    "lib.streaming.chat._events": {
        "lib.streaming.chat": (
            "ChatCompletionStreamEvent ChunkEvent ContentDeltaEvent ContentDoneEvent "
            "FunctionToolCallArgumentsDeltaEvent FunctionToolCallArgumentsDoneEvent "
            "LogprobsContentDeltaEvent LogprobsContentDoneEvent LogprobsRefusalDeltaEvent "
            "LogprobsRefusalDoneEvent RefusalDeltaEvent RefusalDoneEvent"
        ),
    },
    "lib.streaming.chat._types": {
        "lib.streaming.chat": (
            "ParsedChatCompletionMessageSnapshot ParsedChatCompletionSnapshot ParsedChoiceSnapshot"
        ),
    },
    "lib.streaming.responses._responses": {
        "structured.responses.stream": (
            "AsyncResponseStream AsyncResponseStreamManager ResponseStream ResponseStreamManager"
        ),
    },
}
