"""The events of a streamed response that carry text, reasoning and sound."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.responses.content import (
    AnnotationContainerFileCitation,
    AnnotationFileCitation,
    AnnotationFilePath,
    AnnotationURLCitation,
    ResponseOutputRefusal,
    ResponseOutputText,
)
from specclient.types.tagged_union import TaggedUnion


class DeltaTopLogprob(WireModel):
    """One of the tokens that were likely at a position."""

    token: str | None = None
    logprob: float | None = None


class DeltaLogprob(WireModel):
    """A token of the piece with its log probability, and those that were likely in its place."""

    token: str
    logprob: float
    top_logprobs: list[DeltaTopLogprob] | None = None


class ResponseTextDeltaEvent(WireModel):
    """The event ``response.output_text.delta``."""

    content_index: int
    delta: str
    item_id: str
    logprobs: list[DeltaLogprob]
    output_index: int
    sequence_number: int
    type: Literal["response.output_text.delta"]


class ResponseTextDoneEvent(WireModel):
    """The event ``response.output_text.done``."""

    content_index: int
    item_id: str
    logprobs: list[DeltaLogprob]
    output_index: int
    sequence_number: int
    text: str
    type: Literal["response.output_text.done"]


Annotation = Annotated[
    AnnotationFileCitation
    | AnnotationURLCitation
    | AnnotationContainerFileCitation
    | AnnotationFilePath
    | None,
    TaggedUnion("type"),
]


class ResponseOutputTextAnnotationAddedEvent(WireModel):
    """The event ``response.output_text.annotation.added``."""

    annotation: Annotation | None = None
    annotation_index: int
    content_index: int
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.output_text.annotation.added"]


class ResponseRefusalDeltaEvent(WireModel):
    """The event ``response.refusal.delta``."""

    content_index: int
    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.refusal.delta"]


class ResponseRefusalDoneEvent(WireModel):
    """The event ``response.refusal.done``."""

    content_index: int
    item_id: str
    output_index: int
    refusal: str
    sequence_number: int
    type: Literal["response.refusal.done"]


class SummaryPart(WireModel):
    """A part of what a model says of its reasoning."""

    text: str
    type: Literal["summary_text"]


class ResponseReasoningSummaryPartAddedEvent(WireModel):
    """The event ``response.reasoning_summary_part.added``."""

    item_id: str
    output_index: int
    part: SummaryPart
    sequence_number: int
    summary_index: int
    type: Literal["response.reasoning_summary_part.added"]


class ResponseReasoningSummaryPartDoneEvent(WireModel):
    """The event ``response.reasoning_summary_part.done``."""

    item_id: str
    output_index: int
    part: SummaryPart
    sequence_number: int
    summary_index: int
    type: Literal["response.reasoning_summary_part.done"]
    status: Literal["incomplete"] | None = None


class ResponseReasoningSummaryTextDeltaEvent(WireModel):
    """The event ``response.reasoning_summary_text.delta``."""

    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    summary_index: int
    type: Literal["response.reasoning_summary_text.delta"]


class ResponseReasoningSummaryTextDoneEvent(WireModel):
    """The event ``response.reasoning_summary_text.done``."""

    item_id: str
    output_index: int
    sequence_number: int
    summary_index: int
    text: str
    type: Literal["response.reasoning_summary_text.done"]


class ResponseReasoningTextDeltaEvent(WireModel):
    """The event ``response.reasoning_text.delta``."""

    content_index: int
    delta: str
    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.reasoning_text.delta"]


class ResponseReasoningTextDoneEvent(WireModel):
    """The event ``response.reasoning_text.done``."""

    content_index: int
    item_id: str
    output_index: int
    sequence_number: int
    text: str
    type: Literal["response.reasoning_text.done"]


class PartReasoningText(WireModel):
    """A part of the reasoning itself."""

    text: str
    type: Literal["reasoning_text"]


Part = Annotated[ResponseOutputText | ResponseOutputRefusal | PartReasoningText, TaggedUnion("type")]


class ResponseContentPartAddedEvent(WireModel):
    """The event ``response.content_part.added``."""

    content_index: int
    item_id: str
    output_index: int
    part: Part
    sequence_number: int
    type: Literal["response.content_part.added"]


class ResponseContentPartDoneEvent(WireModel):
    """The event ``response.content_part.done``."""

    content_index: int
    item_id: str
    output_index: int
    part: Part
    sequence_number: int
    type: Literal["response.content_part.done"]


class ResponseAudioDeltaEvent(WireModel):
    """The event ``response.audio.delta``."""

    delta: str
    sequence_number: int
    type: Literal["response.audio.delta"]


class ResponseAudioDoneEvent(WireModel):
    """The event ``response.audio.done``."""

    sequence_number: int
    type: Literal["response.audio.done"]


class ResponseAudioTranscriptDeltaEvent(WireModel):
    """The event ``response.audio.transcript.delta``."""

    delta: str
    sequence_number: int
    type: Literal["response.audio.transcript.delta"]


class ResponseAudioTranscriptDoneEvent(WireModel):
    """The event ``response.audio.transcript.done``."""

    sequence_number: int
    type: Literal["response.audio.transcript.done"]
