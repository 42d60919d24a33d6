"""Turn calls on which no model works into their answers: nothing to decide, and nothing to record."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from specclient.call.decode import CallResult, decode_events, decode_reply
from specclient.call.encode import not_served_in_process
from specclient.providers import Endpoint, dialect_of
from specclient.routing.destinations import DestinationRegistry
from specclient.transport.http import Transport
from specclient.types.model import Model
from specclient.types.request import Request


async def execute(request: Request, places: DestinationRegistry, transport: Transport) -> CallResult:
    """Serve a call whole."""
    if request.method.name == "models.list" and request.provider in places.backend_names():
        listed = [model.to_dict() for model in await list_models(request.provider, places, transport)]
        return CallResult(request.method.response_type.model_validate({"object": "list", "data": listed}))
    place = _endpoint(request, places)
    wire = await transport.fetch(dialect_of(place).encode(request, place, ""))
    return decode_reply(place, request, wire)


async def stream(
    request: Request, places: DestinationRegistry, transport: Transport
) -> AsyncGenerator[Any, None]:
    """Yield the response once the endpoint has answered, then its events, as they came together."""
    place = _endpoint(request, places)
    async with transport.stream(dialect_of(place).encode(request, place, "")) as events:
        yield events, None
        async for batch in decode_events(place, request, events):
            yield batch


async def stream_bytes(
    request: Request, places: DestinationRegistry, transport: Transport
) -> AsyncGenerator[Any, None]:
    """Yield the response once the endpoint has answered, then its bytes, as they came together."""
    place = _endpoint(request, places)
    async with transport.open(dialect_of(place).encode(request, place, "")) as opened:
        yield opened, dialect_of(place)
        async for chunk in opened.chunks():
            yield [chunk]


async def list_models(provider: str | None, places: DestinationRegistry, transport: Transport) -> list[Model]:
    """List what an endpoint or an engine serves; the default endpoint's where none is named."""
    name = provider or places.default
    place = places.get(name)
    if isinstance(place, Endpoint):
        reply = await transport.fetch(dialect_of(place).encode_models(place))
        return dialect_of(place).decode_models(reply)
    return [Model(id=f"{name}/{model.id}", owned_by=name) for model in place.models()]


def _endpoint(request: Request, places: DestinationRegistry) -> Endpoint:
    name = request.provider or places.default
    place = places.get(name)
    if not isinstance(place, Endpoint):
        raise not_served_in_process(name)
    return place
