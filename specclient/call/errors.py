"""Errors that the call pipeline raises itself, as opposed to those that a server's response causes."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.errors import (
    APIConnectionError,
    APIError,
    DeadlineExceededError,
    NotFoundError,
    UnsupportedParameterError,
)
from specclient.providers import Endpoint
from specclient.types.error_body import parse_error_body

#: The message of an error in a stream that has none, as in the ``openai`` package.
_NO_MESSAGE = "An error occurred during streaming"


def caller_stream_error(error: APIError) -> APIError:
    """Return the error that a caller gets for one that ended a stream.

    One that an event reported is an :class:`APIError` without a status, as in the ``openai`` package. The
    pipeline needs its status class to choose another route. Other errors are returned unchanged.
    """
    if error.reported_status is None:
        return error
    body = error.body
    if isinstance(body, Mapping) and body.get("error"):  # text in place of an object
        body = body["error"]
    made = APIError(parse_error_body(body).message or _NO_MESSAGE, error.request, body=body)
    made.code, made.param, made.type = error.code, error.param, error.type
    made.attempts, made.partial, made.reported_status = error.attempts, error.partial, error.reported_status
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made


def truncated_stream_error(endpoint: Endpoint) -> APIConnectionError:
    """Return the error for a stream that ended before its answer was complete."""
    return APIConnectionError(
        message=f"Connection error. The stream of {endpoint.name!r} ended before the answer did, with "
        "neither a finish_reason nor [DONE]."
    )


def truncated_event_error(endpoint: Endpoint) -> APIConnectionError:
    """Return the error for a stream that ended in the middle of an event."""
    return APIConnectionError(
        message=f"Connection error. The stream of {endpoint.name!r} ended in the middle of an event."
    )


def not_served_in_process(name: str) -> NotFoundError:
    """Return the error for a method that an engine in this process does not serve."""
    return NotFoundError(
        f"{name!r} is an engine in this process and serves chat.completions.create, completions.create, "
        "embeddings.create and responses.create alone, whose bodies cannot be read as bytes; name a hosted "
        "provider's model for anything else"
    )


def bodiless_answer_error() -> NotFoundError:
    """Return the error for an object stored here that is requested as the bytes of a response."""
    return NotFoundError(
        "what is stored in this process comes without an HTTP response, whose body could be read: use "
        "with_raw_response in place of with_streaming_response"
    )


def strategy_bytes_error() -> UnsupportedParameterError:
    """Return the error for a request that combines a strategy with ``with_streaming_response``."""
    error = UnsupportedParameterError(
        "with_streaming_response returns the bytes of one server response, and a strategy may need several "
        "responses for one answer: leave the strategy out, or use with_raw_response or stream=True"
    )
    error.param = "strategy"
    return error


def server_deadline_error(title: str, deadline_s: float | None) -> DeadlineExceededError:
    """Return the error for a call whose deadline passed while the server of its model was being started."""
    error = DeadlineExceededError(
        message=f"Request timed out. deadline_s={deadline_s} is over, and {title} is still being started; "
        "call again later, or pass a larger deadline_s="
    )
    error.sent = False
    return error
