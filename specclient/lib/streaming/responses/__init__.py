"""The names of the OpenAI client's ``lib.streaming.responses``."""

from specclient.structured.responses.events import (
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)
from specclient.structured.responses.state import ResponseStreamState
from specclient.structured.responses.stream import (
    AsyncResponseStream,
    AsyncResponseStreamManager,
    ResponseStream,
    ResponseStreamManager,
)

__all__ = [
    "AsyncResponseStream",
    "AsyncResponseStreamManager",
    "ResponseFunctionCallArgumentsDeltaEvent",
    "ResponseStream",
    "ResponseStreamEvent",
    "ResponseStreamManager",
    "ResponseStreamState",
    "ResponseTextDeltaEvent",
    "ResponseTextDoneEvent",
]
