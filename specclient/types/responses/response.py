"""A response as it comes over the wire, whole."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specclient.types.base import WireModel
from specclient.types.call import MeteredModel
from specclient.types.open import OpenObject
from specclient.types.responses.content import (
    ResponseError,
    ResponseInputFile,
    ResponseInputImage,
    ResponseInputText,
)
from specclient.types.responses.items import ResponseOutputItem
from specclient.types.responses.tool_choices import (
    ToolChoiceAllowed,
    ToolChoiceApplyPatch,
    ToolChoiceCustom,
    ToolChoiceFunction,
    ToolChoiceMcp,
    ToolChoiceOptions,
    ToolChoiceShell,
    ToolChoiceTypes,
)
from specclient.types.responses.tools import Tool
from specclient.types.shared.objects import (
    Metadata,
    Reasoning,
    ResponseFormatJSONObject,
    ResponseFormatText,
    ResponsesModel,
)
from specclient.types.tagged_union import TaggedUnion


class InputTokensDetailsCacheWriteTokensDetails(WireModel):
    """Parts of the tokens written to a cache, by how long they are kept."""

    ttl_12h_tokens: int
    ttl_30m_tokens: int


class InputTokensDetails(WireModel):
    """Parts of ``input_tokens``."""

    cache_write_tokens: int
    cached_tokens: int
    cache_write_tokens_details: InputTokensDetailsCacheWriteTokensDetails | None = None


class OutputTokensDetails(WireModel):
    """Parts of ``output_tokens``."""

    reasoning_tokens: int


class ResponseUsage(WireModel):
    """The tokens that a response took."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


Variables = Annotated[str | ResponseInputText | ResponseInputImage | ResponseInputFile, TaggedUnion("type")]


class ResponsePrompt(WireModel):
    """A prompt that the API keeps, with what stands for its variables."""

    id: str
    variables: dict[str, Variables] | None = None
    version: str | None = None


class ResponseFormatTextJSONSchemaConfig(WireModel):
    """JSON that fits a schema."""

    name: str
    schema_: dict[str, Any] = Field(alias="schema")
    type: Literal["json_schema"]
    description: str | None = None
    strict: bool | None = None


ResponseFormatTextConfig = Annotated[
    ResponseFormatText | ResponseFormatTextJSONSchemaConfig | ResponseFormatJSONObject, TaggedUnion("type")
]


class ResponseTextConfig(WireModel):
    """How text is written."""

    format: ResponseFormatTextConfig | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


ResponseStatus = Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]


ResponseIncludable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None


class AccessPrograms(WireModel):
    """The programs that let a model do more."""

    cyber: Literal["standard", "daybreak_blue", "daybreak_red"]


class IncompleteDetails(WireModel):
    """Why a response broke off."""

    reason: Literal["max_output_tokens", "max_messages", "content_filter", "steered"] | None = None


class ToolChoiceSpecificProgrammaticToolCallingParam(WireModel):
    """That tools are called by a program."""

    type: Literal["programmatic_tool_calling"]


ToolChoice = Annotated[
    ToolChoiceOptions
    | ToolChoiceAllowed
    | ToolChoiceTypes
    | ToolChoiceFunction
    | ToolChoiceMcp
    | ToolChoiceCustom
    | ToolChoiceSpecificProgrammaticToolCallingParam
    | ToolChoiceApplyPatch
    | ToolChoiceShell,
    TaggedUnion("type"),
]


class Conversation(WireModel):
    """The conversation that a response belongs to."""

    id: str


class Image(WireModel):
    """How images are read."""

    context_compression: Literal["enabled", "disabled"]


class InputTransformation(WireModel):
    """How the input was changed."""

    id: str
    action: Literal["removed"]
    reason: Literal[
        "organization_mismatch", "end_user_mismatch", "model_mismatch", "prefix_mismatch", "turn_boundary"
    ]
    type: Literal["reasoning"]


class ModerationInputModerationResult(WireModel):
    """What moderation found; the mappings are by category."""

    categories: dict[str, bool]
    category_applied_input_types: dict[str, list[Literal["text", "image"]]]
    category_scores: dict[str, float]
    flagged: bool
    model: str
    type: Literal["moderation_result"]


class ModerationInputError(WireModel):
    """Why there is no result of moderation."""

    code: str
    message: str
    type: Literal["error"]


ModerationInput = Annotated[ModerationInputModerationResult | ModerationInputError, TaggedUnion("type")]


# What is said of the output has the shape of what is said of the input.
ModerationOutputModerationResult = ModerationInputModerationResult
ModerationOutputError = ModerationInputError
ModerationOutput = ModerationInput


class Moderation(WireModel):
    """What moderation made of input and output."""

    input: ModerationInput
    output: ModerationOutput


class PromptCacheDiagnosticsCacheMiss(WireModel):
    """Why a cache did not help."""

    cache_missed_tokens: int
    reason: Literal[
        "model_changed",
        "prompt_cache_key_changed",
        "tools_changed",
        "text_format_changed",
        "reasoning_effort_changed",
        "verbosity_changed",
        "context_compacted",
        "input_changed",
        "service_tier_changed",
    ]
    type: Literal["cache_miss"]
    comparison_reusable_tokens: int | None = None


class PromptCacheDiagnosticsCacheHit(WireModel):
    """That a cache helped."""

    type: Literal["cache_hit"]


class PromptCacheDiagnosticsComparisonResponseNotFound(WireModel):
    """That the response to compare with is not there."""

    type: Literal["comparison_response_not_found"]


class PromptCacheDiagnosticsUnavailable(WireModel):
    """That nothing is known."""

    type: Literal["unavailable"]


PromptCacheDiagnostics = Annotated[
    PromptCacheDiagnosticsCacheMiss
    | PromptCacheDiagnosticsCacheHit
    | PromptCacheDiagnosticsComparisonResponseNotFound
    | PromptCacheDiagnosticsUnavailable,
    TaggedUnion("type"),
]


class PromptCacheOptions(WireModel):
    """How prompts are cached."""

    mode: Literal["implicit", "explicit"]
    ttl: Literal["30m", "12h"]
    comparison_response_id: str | None = None


class ToolUsageImageGenInputTokensDetails(WireModel):
    """Parts of the tokens that images took in."""

    image_tokens: int
    text_tokens: int


class ToolUsageImageGenCachedTokensDetails(WireModel):
    """Parts of the tokens read from a cache."""

    cached_image_tokens: int
    cached_text_tokens: int


class ToolUsageImageGenOutputTokensDetails(WireModel):
    """Parts of the tokens that images are made of."""

    image_tokens: int
    text_tokens: int


class ToolUsageImageGen(WireModel):
    """The tokens that images took."""

    input_tokens: int
    input_tokens_details: ToolUsageImageGenInputTokensDetails
    output_tokens: int
    total_tokens: int
    cached_tokens: int | None = None
    cached_tokens_details: ToolUsageImageGenCachedTokensDetails | None = None
    output_tokens_details: ToolUsageImageGenOutputTokensDetails | None = None


class ToolUsageWebSearch(WireModel):
    """The searches of the web."""

    num_requests: int


class ToolUsage(WireModel):
    """What tools used."""

    image_gen: ToolUsageImageGen
    web_search: ToolUsageWebSearch


class Response(MeteredModel):
    """The answer of ``responses.create``; ``created_at`` is in Unix seconds.

    https://platform.openai.com/docs/api-reference/responses/object
    """

    id: str
    access_programs: AccessPrograms | None = None
    created_at: float
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | list[OpenObject] | None = None
    metadata: Metadata | None = None
    model: ResponsesModel
    object: Literal["response"]
    output: list[ResponseOutputItem]
    parallel_tool_calls: bool
    temperature: float | None = None
    tool_choice: ToolChoice
    tools: list[Tool]
    top_p: float | None = None
    background: bool | None = None
    completed_at: float | None = None
    conversation: Conversation | None = None
    image: Image | None = None
    input_transformations: list[InputTransformation] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    moderation: Moderation | None = None
    previous_response_id: str | None = None
    prompt: ResponsePrompt | None = None
    prompt_cache_diagnostics: PromptCacheDiagnostics | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    reasoning: Reasoning | None = None
    safety_identifier: str | None = None
    service_tier: ServiceTier = None
    status: ResponseStatus | None = None
    text: ResponseTextConfig | None = None
    tool_usage: ToolUsage | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    usage: ResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """The text of all messages in ``output``, in a row; empty where there is none."""
        return "".join(
            part.text
            for item in self.output or ()
            if item.type == "message"
            for part in item.content or ()
            if part.type == "output_text"
        )
