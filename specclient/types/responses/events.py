"""The events that a streamed response is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from specclient.types.base import WireModel
from specclient.types.responses.call_events import (
    ResponseCodeInterpreterCallCodeDeltaEvent,
    ResponseCodeInterpreterCallCodeDoneEvent,
    ResponseCodeInterpreterCallCompletedEvent,
    ResponseCodeInterpreterCallInProgressEvent,
    ResponseCodeInterpreterCallInterpretingEvent,
    ResponseCustomToolCallInputDeltaEvent,
    ResponseCustomToolCallInputDoneEvent,
    ResponseFileSearchCallCompletedEvent,
    ResponseFileSearchCallInProgressEvent,
    ResponseFileSearchCallSearchingEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseImageGenCallCompletedEvent,
    ResponseImageGenCallGeneratingEvent,
    ResponseImageGenCallInProgressEvent,
    ResponseImageGenCallPartialImageEvent,
    ResponseMcpCallArgumentsDeltaEvent,
    ResponseMcpCallArgumentsDoneEvent,
    ResponseMcpCallCompletedEvent,
    ResponseMcpCallFailedEvent,
    ResponseMcpCallInProgressEvent,
    ResponseMcpListToolsCompletedEvent,
    ResponseMcpListToolsFailedEvent,
    ResponseMcpListToolsInProgressEvent,
    ResponseShellCallCommandAddedEvent,
    ResponseShellCallCommandDeltaEvent,
    ResponseShellCallCommandDoneEvent,
    ResponseShellCallOutputContentDeltaEvent,
    ResponseShellCallOutputContentDoneEvent,
    ResponseWebSearchCallCompletedEvent,
    ResponseWebSearchCallInProgressEvent,
    ResponseWebSearchCallSearchingEvent,
)
from specclient.types.responses.items import ResponseOutputItem
from specclient.types.responses.response import Response
from specclient.types.responses.text_events import (
    ResponseAudioDeltaEvent,
    ResponseAudioDoneEvent,
    ResponseAudioTranscriptDeltaEvent,
    ResponseAudioTranscriptDoneEvent,
    ResponseContentPartAddedEvent,
    ResponseContentPartDoneEvent,
    ResponseOutputTextAnnotationAddedEvent,
    ResponseReasoningSummaryPartAddedEvent,
    ResponseReasoningSummaryPartDoneEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningSummaryTextDoneEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseReasoningTextDoneEvent,
    ResponseRefusalDeltaEvent,
    ResponseRefusalDoneEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)
from specclient.types.tagged_union import TaggedUnion


class ResponseCreatedEvent(WireModel):
    """The event ``response.created``."""

    response: Response
    sequence_number: int
    type: Literal["response.created"]


class ResponseQueuedEvent(WireModel):
    """The event ``response.queued``."""

    response: Response
    sequence_number: int
    type: Literal["response.queued"]


class ResponseInProgressEvent(WireModel):
    """The event ``response.in_progress``."""

    response: Response
    sequence_number: int
    type: Literal["response.in_progress"]


class ResponseCompletedEvent(WireModel):
    """The event ``response.completed``."""

    response: Response
    sequence_number: int
    type: Literal["response.completed"]


class ResponseFailedEvent(WireModel):
    """The event ``response.failed``."""

    response: Response
    sequence_number: int
    type: Literal["response.failed"]


class ResponseIncompleteEvent(WireModel):
    """The event ``response.incomplete``."""

    response: Response
    sequence_number: int
    type: Literal["response.incomplete"]


class ResponseErrorEvent(WireModel):
    """The event ``error``."""

    code: str | None = None
    message: str
    param: str | None = None
    sequence_number: int
    type: Literal["error"]


class ResponseOutputItemAddedEvent(WireModel):
    """The event ``response.output_item.added``."""

    item: ResponseOutputItem
    output_index: int
    sequence_number: int
    type: Literal["response.output_item.added"]


class ResponseOutputItemDoneEvent(WireModel):
    """The event ``response.output_item.done``."""

    item: ResponseOutputItem
    output_index: int
    sequence_number: int
    type: Literal["response.output_item.done"]


class ResponseCompactionCompactingEvent(WireModel):
    """The event ``response.compaction.compacting``."""

    item_id: str
    output_index: int
    sequence_number: int
    type: Literal["response.compaction.compacting"]


ResponseStreamEvent = Annotated[
    ResponseAudioDeltaEvent
    | ResponseAudioDoneEvent
    | ResponseAudioTranscriptDeltaEvent
    | ResponseAudioTranscriptDoneEvent
    | ResponseCodeInterpreterCallCodeDeltaEvent
    | ResponseCodeInterpreterCallCodeDoneEvent
    | ResponseCodeInterpreterCallCompletedEvent
    | ResponseCodeInterpreterCallInProgressEvent
    | ResponseCodeInterpreterCallInterpretingEvent
    | ResponseCompactionCompactingEvent
    | ResponseCompletedEvent
    | ResponseContentPartAddedEvent
    | ResponseContentPartDoneEvent
    | ResponseCreatedEvent
    | ResponseErrorEvent
    | ResponseFileSearchCallCompletedEvent
    | ResponseFileSearchCallInProgressEvent
    | ResponseFileSearchCallSearchingEvent
    | ResponseFunctionCallArgumentsDeltaEvent
    | ResponseFunctionCallArgumentsDoneEvent
    | ResponseShellCallCommandAddedEvent
    | ResponseShellCallCommandDeltaEvent
    | ResponseShellCallCommandDoneEvent
    | ResponseShellCallOutputContentDeltaEvent
    | ResponseShellCallOutputContentDoneEvent
    | ResponseInProgressEvent
    | ResponseFailedEvent
    | ResponseIncompleteEvent
    | ResponseOutputItemAddedEvent
    | ResponseOutputItemDoneEvent
    | ResponseReasoningSummaryPartAddedEvent
    | ResponseReasoningSummaryPartDoneEvent
    | ResponseReasoningSummaryTextDeltaEvent
    | ResponseReasoningSummaryTextDoneEvent
    | ResponseReasoningTextDeltaEvent
    | ResponseReasoningTextDoneEvent
    | ResponseRefusalDeltaEvent
    | ResponseRefusalDoneEvent
    | ResponseTextDeltaEvent
    | ResponseTextDoneEvent
    | ResponseWebSearchCallCompletedEvent
    | ResponseWebSearchCallInProgressEvent
    | ResponseWebSearchCallSearchingEvent
    | ResponseImageGenCallCompletedEvent
    | ResponseImageGenCallGeneratingEvent
    | ResponseImageGenCallInProgressEvent
    | ResponseImageGenCallPartialImageEvent
    | ResponseMcpCallArgumentsDeltaEvent
    | ResponseMcpCallArgumentsDoneEvent
    | ResponseMcpCallCompletedEvent
    | ResponseMcpCallFailedEvent
    | ResponseMcpCallInProgressEvent
    | ResponseMcpListToolsCompletedEvent
    | ResponseMcpListToolsFailedEvent
    | ResponseMcpListToolsInProgressEvent
    | ResponseOutputTextAnnotationAddedEvent
    | ResponseQueuedEvent
    | ResponseCustomToolCallInputDeltaEvent
    | ResponseCustomToolCallInputDoneEvent,
    TaggedUnion("type"),
]
