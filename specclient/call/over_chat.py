"""Which requests of the Responses API are served as chat completions, by :mod:`specclient.call.responses`."""

from __future__ import annotations

from specclient.providers import Endpoint
from specclient.providers.dialects import unsupported_operation
from specclient.routing.destinations import Destination
from specclient.types.request import Request

__all__ = ["is_over_chat"]


def is_over_chat(request: Request, destination: Destination) -> bool:
    """Return whether a destination serves a request of the Responses API as a chat completion.

    Engines in this process do, and endpoints whose dialect or capabilities have no Responses API.
    """
    if request.operation != "response":
        return False
    if not isinstance(destination, Endpoint) or destination.capabilities.responses is False:
        return True
    return unsupported_operation(destination.dialect, request.operation) is not None
