"""Events of a streamed response: the API's own, four of which have a snapshot or parsed values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeAliasType

from specclient.types.responses import events
from specclient.types.responses.parsed_response import ParsedResponse

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    TextFormatT = TypeVar("TextFormatT", default=None)  # without a text format, ``parsed`` is None
else:
    from typing import TypeVar

    TextFormatT = TypeVar("TextFormatT")  # no default: pydantic would validate every value against it

#: The response received so far. The same object is updated from the first event to the last.
ParsedResponseSnapshot = ParsedResponse


class ResponseTextDeltaEvent(events.ResponseTextDeltaEvent):
    """New text, and the text so far."""

    snapshot: str


class ResponseTextDoneEvent(events.ResponseTextDoneEvent, Generic[TextFormatT]):
    """A complete text, and its parsed value."""

    parsed: TextFormatT | None = None


class ResponseFunctionCallArgumentsDeltaEvent(events.ResponseFunctionCallArgumentsDeltaEvent):
    """New text of a function call's arguments, and the arguments so far."""

    snapshot: str


class ResponseCompletedEvent(events.ResponseCompletedEvent, Generic[TextFormatT]):
    """The complete, parsed response."""

    response: ParsedResponse[TextFormatT]


#: Any event of a streamed response: one of the four above, or any other event of the API, unmodified.
ResponseStreamEvent = TypeAliasType(
    "ResponseStreamEvent",
    ResponseTextDeltaEvent
    | ResponseTextDoneEvent[TextFormatT]
    | ResponseFunctionCallArgumentsDeltaEvent
    | ResponseCompletedEvent[TextFormatT]
    | events.OtherStreamEvent,
    type_params=(TextFormatT,),
)
