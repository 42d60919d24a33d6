"""The events that a streamed response becomes: the API's own, four of them with what has come so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeAliasType

from specclient.types.responses import events
from specclient.types.responses.parsed_response import ParsedResponse

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    TextFormatT = TypeVar("TextFormatT", default=None)  # nothing asked for: ``parsed`` is None
else:
    from typing import TypeVar

    TextFormatT = TypeVar("TextFormatT")  # without the default, which pydantic would hold every value to

#: What a stream has brought so far; the same object from the first event to the last, and growing.
ParsedResponseSnapshot = ParsedResponse


class ResponseTextDeltaEvent(events.ResponseTextDeltaEvent):
    """A piece of text, and the text so far."""

    snapshot: str


class ResponseTextDoneEvent(events.ResponseTextDoneEvent, Generic[TextFormatT]):
    """A whole text, and the object it is."""

    parsed: TextFormatT | None = None


class ResponseFunctionCallArgumentsDeltaEvent(events.ResponseFunctionCallArgumentsDeltaEvent):
    """A piece of the arguments of a function call, and the arguments so far."""

    snapshot: str


class ResponseCompletedEvent(events.ResponseCompletedEvent, Generic[TextFormatT]):
    """The whole response, parsed."""

    response: ParsedResponse[TextFormatT]


#: Any event of a streamed response: one of the four above, or any other of the API's as it came.
ResponseStreamEvent = TypeAliasType(
    "ResponseStreamEvent",
    ResponseTextDeltaEvent
    | ResponseTextDoneEvent[TextFormatT]
    | ResponseFunctionCallArgumentsDeltaEvent
    | ResponseCompletedEvent[TextFormatT]
    | events.ResponseStreamEvent,
    type_params=(TextFormatT,),
)
