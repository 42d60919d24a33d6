"""The parameters of the calls beneath ``chat.completions``, as whole objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Required, TypedDict

from specclient.types.chat.message_params import ChatCompletionMessageParam
from specclient.types.chat.tool_params import (
    ChatCompletionAudioParam,
    ChatCompletionFunctionCallOptionParam,
    ChatCompletionPredictionContentParam,
    ChatCompletionStreamOptionsParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolUnionParam,
    ResponseFormat,
    WebSearchOptions,
)
from specclient.types.shared_params.objects import ChatModel, FunctionParameters, Metadata, ReasoningEffort

FunctionCall = Literal["none", "auto"] | ChatCompletionFunctionCallOptionParam


class Function(TypedDict, total=False):
    """A function that the model may call, in the API's first form."""

    name: Required[str]
    description: str
    parameters: FunctionParameters


class ModerationPolicyInput(TypedDict, total=False):
    """Whether the messages are only judged, or also refused."""

    mode: Required[Literal["score", "block"]]


class ModerationPolicyOutput(TypedDict, total=False):
    """Whether the answer is only judged, or also withheld."""

    mode: Required[Literal["score", "block"]]


class ModerationPolicy(TypedDict, total=False):
    """What follows from moderation."""

    input: ModerationPolicyInput | None
    output: ModerationPolicyOutput | None


class Moderation(TypedDict, total=False):
    """The model that judges messages and answer."""

    model: Required[str]
    policy: ModerationPolicy | None


class PromptCacheOptions(TypedDict, total=False):
    """How prompts are cached."""

    mode: Literal["implicit", "explicit"]
    ttl: Literal["30m"]


class CompletionCreateParamsBase(TypedDict, total=False):
    """What ``chat.completions.create`` takes, streamed or not."""

    messages: Required[Iterable[ChatCompletionMessageParam]]
    model: Required[ChatModel]
    audio: ChatCompletionAudioParam | None
    frequency_penalty: float | None
    function_call: FunctionCall
    functions: Iterable[Function]
    logit_bias: dict[str, int] | None
    logprobs: bool | None
    max_completion_tokens: int | None
    max_tokens: int | None
    metadata: Metadata | None
    modalities: list[Literal["text", "audio"]] | None
    moderation: Moderation | None
    n: int | None
    parallel_tool_calls: bool
    prediction: ChatCompletionPredictionContentParam | None
    presence_penalty: float | None
    prompt_cache_key: str | None
    prompt_cache_options: PromptCacheOptions
    prompt_cache_retention: Literal["in_memory", "24h"] | None
    reasoning_effort: ReasoningEffort
    response_format: ResponseFormat
    safety_identifier: str | None
    seed: int | None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None
    stop: str | Sequence[str] | None
    store: bool | None
    stream_options: ChatCompletionStreamOptionsParam | None
    temperature: float | None
    tool_choice: ChatCompletionToolChoiceOptionParam
    tools: Iterable[ChatCompletionToolUnionParam]
    top_logprobs: int | None
    top_p: float | None
    user: str
    verbosity: Literal["low", "medium", "high"] | None
    web_search_options: WebSearchOptions


class CompletionCreateParamsNonStreaming(CompletionCreateParamsBase, total=False):
    """What ``chat.completions.create`` takes for a whole answer."""

    stream: Literal[False] | None


class CompletionCreateParamsStreaming(CompletionCreateParamsBase):
    """What ``chat.completions.create`` takes for a streamed answer."""

    stream: Required[Literal[True]]


CompletionCreateParams = CompletionCreateParamsNonStreaming | CompletionCreateParamsStreaming


class CompletionListParams(TypedDict, total=False):
    """Which stored chat completions to list."""

    after: str
    limit: int
    metadata: Metadata | None
    model: str
    order: Literal["asc", "desc"]


class CompletionUpdateParams(TypedDict, total=False):
    """What to change of a stored chat completion."""

    metadata: Required[Metadata | None]


class MessageListParams(TypedDict, total=False):
    """Which messages of a stored chat completion to list."""

    after: str
    limit: int
    order: Literal["asc", "desc"]
