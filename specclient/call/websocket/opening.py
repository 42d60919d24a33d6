"""Where a WebSocket is opened: the endpoint of a model, and the handshake in its provider's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specclient.call.pipeline import Pipeline
from specclient.errors import BadRequestError, NotFoundError, OpenAIError
from specclient.http_transport.websocket import ClientConnection, http_url, open_websocket
from specclient.providers import Endpoint, dialect_of
from specclient.routing.router import AUTO
from specclient.types.api_method import ApiMethod
from specclient.types.model_aliases import ModelAliases
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import WireRequest

__all__ = ["handshake", "open_at", "socket_endpoint"]


def socket_endpoint(
    pipeline: Pipeline, model: str, aliases: ModelAliases | None = None
) -> tuple[Endpoint, str]:
    """Return the endpoint of a model, and the model's name there; the default endpoint for an empty name.

    Args:
        aliases: those of the request; None without any.

    Raises:
        BadRequestError: the model is ``auto``: a WebSocket stays at one provider.
        NotFoundError: the provider is unknown, or has no API over WebSockets.
    """
    places = pipeline.destinations
    name, inner = places.split(model, aliases) if model else (places.default, "")
    if places.resolve(model, aliases) == AUTO and not places.owns_names:
        error = BadRequestError("model is 'auto'; a WebSocket stays at one provider, so name a model of it")
        error.param = "model"
        raise error
    endpoint = places.get(name)
    if not isinstance(endpoint, Endpoint) or endpoint.dialect != "openai":
        raise NotFoundError(
            f"provider {name!r} has no API over WebSockets; name a model of a provider with OpenAI's API"
        )
    return endpoint, inner


def handshake(
    endpoint: Endpoint,
    method: ApiMethod,
    params: Mapping[str, Any],
    options: PerCallOptions,
    *,
    path_params: Mapping[str, str] | None = None,
) -> WireRequest:
    """Return the HTTP request that opens a WebSocket.

    Args:
        method: its path and fixed headers.
        params: the parameters of the query, ``model`` among them.
        options: further headers and query parameters.

    Raises:
        BadRequestError: an Azure resource needs a model, which names the deployment.
        OpenAIError: the client's credentials are not for WebSockets (X.509 workload identity).
    """
    if not getattr(endpoint.authorizer, "opens_sockets", True):
        raise OpenAIError("This authentication method is not supported by WebSocket connections")
    if endpoint.websocket_url is not None:
        endpoint = replace(endpoint, base_url=http_url(endpoint.websocket_url))
    if method.path == "/realtime" and (endpoint.deployments or endpoint.key_header == "api-key"):
        deployment = endpoint.deployment or params.get("model")
        if not deployment:
            raise BadRequestError("model is required at an Azure resource, where it names the deployment")
        rest = {name: value for name, value in params.items() if name != "model"}
        params = {**rest, "deployment": deployment}
    request = Request(method, params=params, path_params=path_params or {}, options=options)
    return dialect_of(endpoint).encode(request, endpoint, "")


async def open_at(
    pipeline: Pipeline, wire: WireRequest, connection_options: Mapping[str, Any]
) -> ClientConnection:
    """Open a WebSocket with the limits of the pipeline's client; see :func:`open_websocket`."""
    return await open_websocket(wire, connection_options, pipeline.transport.response_limits)
