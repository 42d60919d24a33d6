"""The names of the OpenAI client's ``lib.streaming.responses``."""

from specclient.structured.response_events import (
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)
from specclient.structured.response_state import ResponseStreamState
from specclient.structured.response_stream import (
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
