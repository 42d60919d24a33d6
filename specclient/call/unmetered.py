"""Calls that run no model, such as listing files: sent to one endpoint, and not recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from specclient.call.decode import decode_events, decode_reply
from specclient.call.errors import not_served_in_process
from specclient.call.result import CallResult
from specclient.http_transport.http import Transport
from specclient.providers import Endpoint, dialect_of
from specclient.routing.destinations import DestinationRegistry
from specclient.types.model import Model
from specclient.types.request import Request


async def execute(request: Request, destinations: DestinationRegistry, transport: Transport) -> CallResult:
    """Send a request and return its complete answer."""
    if request.method.name == "models.list" and request.provider in destinations.backend_names():
        models = await list_models(request.provider, destinations, transport)
        listed = [model.to_dict() for model in models]
        return CallResult(request.method.response_type.model_validate({"object": "list", "data": listed}))
    endpoint = _endpoint(request, destinations)
    reply = await transport.fetch(dialect_of(endpoint).encode(request, endpoint, ""))
    return decode_reply(endpoint, request, reply)


async def stream(
    request: Request, destinations: DestinationRegistry, transport: Transport
) -> AsyncGenerator[Any, None]:
    """Yield ``(response, None)`` once the endpoint has answered, then lists of events."""
    endpoint = _endpoint(request, destinations)
    async with transport.stream(dialect_of(endpoint).encode(request, endpoint, "")) as events:
        yield events, None
        async for batch in decode_events(endpoint, request, events):
            yield batch


async def stream_bytes(
    request: Request, destinations: DestinationRegistry, transport: Transport
) -> AsyncGenerator[Any, None]:
    """Yield ``(response, dialect)`` once the endpoint has answered, then lists of bytes."""
    endpoint = _endpoint(request, destinations)
    async with transport.open(dialect_of(endpoint).encode(request, endpoint, "")) as body:
        yield body, dialect_of(endpoint)
        async for chunk in body.chunks():
            yield [chunk]


async def list_models(
    provider: str | None, destinations: DestinationRegistry, transport: Transport
) -> list[Model]:
    """List the models of an endpoint or an engine; None for the default endpoint."""
    name = provider or destinations.default
    destination = destinations.get(name)
    if isinstance(destination, Endpoint):
        reply = await transport.fetch(dialect_of(destination).encode_models(destination))
        return dialect_of(destination).decode_models(reply)
    return [Model(id=f"{name}/{model.id}", owned_by=name) for model in destination.models()]


def _endpoint(request: Request, destinations: DestinationRegistry) -> Endpoint:
    name = request.provider or destinations.default
    destination = destinations.get(name)
    if not isinstance(destination, Endpoint):
        raise not_served_in_process(name)
    return destination
