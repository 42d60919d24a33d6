"""The API methods of stored objects, and whether a provider or this process answers a call of one."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.call.responses.ids import is_local
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.types.request import Request

__all__ = ["STORED_METHODS", "is_answered_here"]

#: The methods, by their names on a client.
STORED_METHODS = frozenset(
    {
        "conversations.create",
        "conversations.delete",
        "conversations.items.create",
        "conversations.items.delete",
        "conversations.items.list",
        "conversations.items.retrieve",
        "conversations.retrieve",
        "conversations.update",
        "responses.cancel",
        "responses.delete",
        "responses.input_items.list",
        "responses.retrieve",
    }
)


def is_answered_here(request: Request, places: DestinationRegistry, *, has_key: bool | None = None) -> bool:
    """Return whether a call of one of :data:`STORED_METHODS` concerns objects stored in this process.

    It does if an id in it was made here, or if it names an engine in this process as its provider, by
    ``{"specclient": {"provider": "local"}}`` in the body. Without an id, or with a provider's id, it does if
    the default provider, which would answer otherwise, has no key.

    Args:
        places: the destinations of the client.
        has_key: whether the default provider has a key; None to read it from its endpoint.
    """
    if any(is_local(value) for value in request.path_params.values()):
        return True
    provider = request.provider or _named_provider(request)
    if provider is not None:
        return provider in places.backend_names()
    if has_key is None:
        place = places.get(places.default)
        has_key = not isinstance(place, Endpoint) or (place.has_key and not place.lacks)
    return not has_key


def _named_provider(request: Request) -> str | None:
    extension = request.options.body.get("specclient")
    name = extension.get("provider") if isinstance(extension, Mapping) else None
    return name if isinstance(name, str) else None
