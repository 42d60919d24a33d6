"""What the messages of a response hold: text with its citations, refusals, images, files, reasoning."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.tagged_union import TaggedUnion


class PromptCacheBreakpoint(WireModel):
    """Where a prompt is cached up to, and for how long."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | None = None


class ResponseInputText(WireModel):
    """Text that a model reads."""

    text: str
    type: Literal["input_text"]
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


ImageDetail = Literal["low", "high", "auto", "original"]


class ResponseInputImage(WireModel):
    """An image that a model sees, by URL, ``data:`` URL or file id."""

    detail: ImageDetail
    type: Literal["input_image"]
    file_id: str | None = None
    image_url: str | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class ResponseInputFile(WireModel):
    """A file that a model reads, as base64, by URL or by id."""

    type: Literal["input_file"]
    detail: Literal["auto", "low", "high"] | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class AnnotationFileCitation(WireModel):
    """That the text cites a file, at a place in the list of files."""

    file_id: str
    filename: str
    index: int
    type: Literal["file_citation"]


class AnnotationURLCitation(WireModel):
    """That the text between two character positions cites a page."""

    end_index: int
    start_index: int
    title: str
    type: Literal["url_citation"]
    url: str


class AnnotationContainerFileCitation(WireModel):
    """That the text between two character positions cites a file of a container."""

    container_id: str
    end_index: int
    file_id: str
    filename: str
    start_index: int
    type: Literal["container_file_citation"]


class AnnotationFilePath(WireModel):
    """That a file was made, at a place in the list of files."""

    file_id: str
    index: int
    type: Literal["file_path"]


Annotation = Annotated[
    AnnotationFileCitation | AnnotationURLCitation | AnnotationContainerFileCitation | AnnotationFilePath,
    TaggedUnion("type"),
]


class LogprobTopLogprob(WireModel):
    """One of the tokens that were likely at a position."""

    token: str
    bytes: list[int]
    logprob: float


class Logprob(WireModel):
    """A token of the text with its log probability, and those that were likely in its place."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[LogprobTopLogprob]


class ResponseOutputText(WireModel):
    """Text that a model wrote, with what it cites."""

    annotations: list[Annotation]
    text: str
    type: Literal["output_text"]
    logprobs: list[Logprob] | None = None


class ResponseOutputRefusal(WireModel):
    """Why a model would not answer."""

    refusal: str
    type: Literal["refusal"]


Content = Annotated[ResponseOutputText | ResponseOutputRefusal, TaggedUnion("type")]


class ResponseOutputMessage(WireModel):
    """A message that a model wrote."""

    id: str
    content: list[Content]
    role: Literal["assistant"]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["message"]
    phase: Literal["commentary", "final_answer"] | None = None


class MisalignmentSteer(WireModel):
    """What was said to a model that went astray."""

    message: str


class Misalignment(WireModel):
    """What a model did that was not wanted."""

    detailed_explanation: str | None = None
    error_type: (
        str
        | Literal[
            "potentially_unintended_data_transfer",
            "potentially_unintended_data_access",
            "potentially_unintended_destructive_activity",
            "other",
        ]
        | None
    ) = None
    review_target: str | None = None
    steer: MisalignmentSteer | None = None


class ResponseError(WireModel):
    """Why a response failed."""

    code: Literal[
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    ]
    message: str
    misalignment: Misalignment | None = None
    param: str | None = None
    type: str | None = None


class Summary(WireModel):
    """A part of what a model says of its reasoning."""

    text: str
    type: Literal["summary_text"]


class ReasoningContent(WireModel):
    """A part of the reasoning itself."""

    text: str
    type: Literal["reasoning_text"]


class ResponseReasoningItem(WireModel):
    """How a model came to its answer; ``encrypted_content`` carries it on to the next call."""

    id: str
    summary: list[Summary]
    type: Literal["reasoning"]
    content: list[ReasoningContent] | None = None
    encrypted_content: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
