"""The interface of a provider's wire dialect, and the dialects by name.

A dialect's module is imported when the first endpoint that uses it is called.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from specclient.errors import ConfigurationError
from specclient.providers.endpoint import Endpoint
from specclient.providers.fleet_pools import pool_endpoint
from specclient.runtime.forks import import_lock
from specclient.types.api_method import ApiMethod
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest, WireResponse

#: Decodes the events of one stream. Called with an event's data and its type (None for the default type).
#: Returns one object, a list of objects, or None for an event without content: a ping or the end marker.
EventReader = Callable[[bytes, str | None], Any]

_CLASSES = {
    "openai": "specclient.providers.openai.dialect:OpenAIDialect",
    "anthropic": "specclient.providers.anthropic.dialect:AnthropicDialect",
    "gemini": "specclient.providers.gemini.dialect:GeminiDialect",
    "vertex": "specclient.providers.vertex.dialect:VertexDialect",
    "bedrock": "specclient.providers.bedrock.dialect:BedrockDialect",
}

DIALECTS = tuple(_CLASSES)
"""The names of all dialects."""

_OPERATIONS = {
    "anthropic": frozenset({"chat"}),
    "bedrock": frozenset({"chat"}),
    "gemini": frozenset({"chat", "embedding"}),
    "vertex": frozenset({"chat", "embedding"}),
}


class Dialect(Protocol):
    """A provider's wire dialect. Every method is a pure function of its arguments."""

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        """Return ``request`` as it is sent to ``endpoint`` for ``model``.

        Raises:
            BadRequestError: a parameter cannot be sent; the error names it.
            ConfigurationError: the key is missing, or a header cannot be sent.
        """
        ...

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        """Return the return value of ``method`` from a whole response.

        The errors carry ``attempts``, and no secrets of the request.

        Raises:
            APIResponseValidationError: the response is not one of this method.
            APIError: the response reports an error with a success status.
        """
        ...

    def events(self, method: ApiMethod) -> EventReader:
        """Return a function that decodes the events of one stream.

        The function raises:
            APIResponseValidationError: an event is not a chunk of this method.
            APIError: an event reports an error; the class follows from its status or type.
        """
        ...

    def usage(self, answer: Any) -> Usage | None:
        """Return the tokens that a response or chunk reports, or None if it reports none."""
        ...

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        """Return the request that lists the models of ``endpoint``."""
        ...

    def decode_models(self, reply: WireResponse) -> list[Model]:
        """Return the models in the response to :meth:`encode_models`. Raises as :meth:`decode`."""
        ...


def unsupported_operation(name: str, operation: str) -> str | None:
    """Return why a dialect does not serve an operation, or None if it does.

    Args:
        name: the dialect's name.
        operation: see :class:`specclient.types.api_method.ApiMethod`.
    """
    operations = _OPERATIONS.get(name)
    if operations is None or operation in operations:
        return None
    return f"its API is {name.capitalize()}'s, which serves {' and '.join(sorted(operations))} alone"


@functools.cache
def dialect(name: str) -> Dialect:
    """Return the dialect with a name.

    Raises:
        ConfigurationError: the name is unknown; the message lists :data:`DIALECTS`.
    """
    if name not in _CLASSES:
        raise ConfigurationError(f"no dialect is named {name!r}; known are {', '.join(DIALECTS)}")
    module, _, class_name = _CLASSES[name].partition(":")
    instance: Dialect = getattr(importlib.import_module(module), class_name)()
    return instance


def dialect_of(endpoint: Endpoint) -> Dialect:
    """Return the dialect of an endpoint."""
    return dialect(endpoint.dialect)


def endpoint_of_model(endpoint: Endpoint, model: str) -> Endpoint:
    """Return the endpoint for the calls of one model.

    It is the endpoint itself, except at a provider with models of several vendors in their dialects, and for
    a fleet, whose pools may have addresses of their own.

    Raises:
        NotFoundError: the provider does not serve the model.
    """
    if endpoint.pools:
        return pool_endpoint(endpoint, model)
    if endpoint.dialect != "vertex":
        return endpoint
    with import_lock:
        from specclient.providers.vertex import endpoint as vertex  # noqa: PLC0415 - few calls need it

    return vertex.endpoint_of_model(endpoint, model)
