"""The request for the usage of a stream: added for the call's record, and refused by some servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from specclient.errors import APIStatusError
from specclient.providers import Endpoint, usage_requested
from specclient.routing.destinations import Destination
from specclient.types.request import Request

__all__ = [
    "StreamStart",
    "adds_usage_request",
    "refuses_usage_request",
    "withholds_usage",
    "without_usage_request",
]

#: Words of errors about a field that a server does not know, without its name.
_UNKNOWN_FIELD = ("extra ", "unknown", "unexpected", "unrecognized", "not permitted", "additional propert")
_NAMES = ("stream_options", "include_usage")


class StreamStart(NamedTuple):
    """The first item of a recorded stream.

    Attributes:
        http: the HTTP response; None where no HTTP was used.
        withholds_usage: see :func:`withholds_usage`.
    """

    http: Any
    withholds_usage: bool


def withholds_usage(request: Request, destination: Destination) -> bool:
    """Return whether the caller does not get a stream's chunks that contain usage alone.

    They are passed on if the caller has requested them, and if a server sends them without any request.
    Otherwise they only answer the request that was added for the call's record.

    Args:
        destination: the endpoint, as the request was encoded for it, or the engine.
    """
    if usage_requested(request):
        return False
    return not isinstance(destination, Endpoint) or destination.dialect != "openai" or destination.asks_usage


def adds_usage_request(request: Request, endpoint: Endpoint) -> bool:
    """Return whether ``stream_options`` is added to a stream whose caller has not set it."""
    return (
        request.operation in ("chat", "completion")
        and endpoint.asks_usage
        and "stream_options" not in request.params
        and "stream_options" not in request.options.body
    )


def refuses_usage_request(error: APIStatusError) -> bool:
    """Return whether an error with status 400 or 422 may be about ``stream_options``."""
    text = f"{error.message} {error.body}".lower()
    return any(words in text for words in (*_NAMES, *_UNKNOWN_FIELD))


def without_usage_request(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose streams do not ask for their usage; their tokens are estimated."""
    return replace(endpoint, requests_usage=False)
