"""Calls of Vertex AI without a publisher's dialect: lists of models, token counts, calls by path.

https://cloud.google.com/vertex-ai/docs/reference/rest. A call of a model has the dialect of its publisher;
see :func:`specclient.providers.vertex.endpoint.endpoint_of_model`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from specclient.errors import ConfigurationError, NotFoundError
from specclient.providers.dialects import EventReader
from specclient.providers.encoding import json_of
from specclient.providers.endpoint import Endpoint
from specclient.providers.errors import embedded_error_of, invalid_response_error
from specclient.providers.openai.dialect import OpenAIDialect
from specclient.providers.vertex.place import ANTHROPIC_VERSION, VertexPlace
from specclient.types.api_method import ApiMethod
from specclient.types.model import Model
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest, WireResponse

#: The list of Google's models has no project. Those of other publishers have lists of their own.
_LISTED: Final = "publishers/google/models"
_MODELS: Final = "models.list"
_MODEL: Final = "models.retrieve"
_PAGE: Final = 100
#: Anthropic's path of token counts, and the model in Vertex AI that counts.
_COUNT_MESSAGES: Final = "/messages/count_tokens"
_COUNT_CONTENTS: Final = ":countTokens"
_COUNTER: Final = "publishers/anthropic/models/count-tokens"
#: Field of Gemini's token count whose members are at the top level in Vertex AI, except ``model``.
_WHOLE: Final = "generateContentRequest"


class VertexDialect:
    """The dialect of Vertex AI for calls without a model; see :class:`specclient.providers.Dialect`."""

    def __init__(self) -> None:
        self._plain = OpenAIDialect()  # for URLs, headers and options

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:  # noqa: ARG002
        name, place, base_url = request.method.name, endpoint.place, endpoint.base_url
        assert place is not None, "made by placed_endpoint"
        if place.problem is not None:
            raise ConfigurationError(f"provider {endpoint.name!r}: {place.problem}")
        if name == _MODELS:
            path = f"{place.version(base_url, 'google')}/{_LISTED}?pageSize={_PAGE}"
        elif name == _MODEL:
            path = f"{place.version(base_url, 'google')}/{_resource_of(request.path_params['model'])}"
        elif "." in name:
            raise NotFoundError(
                f"provider {endpoint.name!r} serves chat.completions.create, embeddings.create, models.list "
                f"and models.retrieve, not {name}; send to other paths by client.get() and client.post()"
            )
        elif request.method.path == _COUNT_MESSAGES:
            path = place.path(base_url, _COUNTER, "rawPredict")
            request = _with_body(request, {"anthropic_version": ANTHROPIC_VERSION, **_body_of(request)})
        elif request.method.path.endswith(_COUNT_CONTENTS):
            named = request.path_params.get("model") or request.method.path.removesuffix(_COUNT_CONTENTS)
            path = place.path(base_url, named.rpartition("/")[2], "countTokens")
            request = _with_body(request, _flat_count(_body_of(request)))
        else:
            path = _placed(request.method.path, place)
        method = replace(request.method, path=path)
        return self._plain.encode(replace(request, method=method, path_params={}), endpoint, "")

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        if method.name in (_MODELS, _MODEL):
            return self._plain.decode(method, replace(reply, content=_renamed(reply.content)))
        return self._plain.decode(method, reply)

    def events(self, method: ApiMethod) -> EventReader:
        return self._plain.events(method)

    def usage(self, answer: Any) -> Usage | None:
        return self._plain.usage(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return self.encode(Request(ApiMethod(name=_MODELS, verb="GET", path="/models")), endpoint, "")

    def decode_models(self, reply: WireResponse) -> list[Model]:
        try:
            return self._plain.decode_models(replace(reply, content=_renamed(reply.content)))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            reason = type(error).__name__
        raise embedded_error_of(reply.content) or invalid_response_error(reply.content, reply.status, reason)


def _placed(path: str, place: VertexPlace) -> str:
    """Return the path of a call by path: complete from its version on, or below the project and location."""
    if path.startswith("/v1"):
        return path
    return f"/v1{path}" if path.startswith("/projects/") else f"/v1{place.parent}{path}"


def _resource_of(model: str) -> str:
    name = model.rpartition("/")[2]
    publisher = "anthropic" if name.startswith("claude") else "google"
    return f"publishers/{publisher}/models/{quote(name, safe='@')}"


def _body_of(request: Request) -> dict[str, Any]:
    """Return the JSON body of a call by path."""
    if request.content is not None:
        body: dict[str, Any] = json.loads(request.content)
        return body
    return {**request.params, **request.options.body}


def _with_body(request: Request, body: Mapping[str, Any]) -> Request:
    options = replace(request.options, body={})
    return replace(request, content=json_of(body), params={}, options=options)


def _flat_count(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of Gemini's token count in the form of Vertex AI, which has no request inside of it."""
    whole = body.get(_WHOLE)
    if not isinstance(whole, Mapping):
        return body
    return {name: value for name, value in whole.items() if name != "model"}


def _renamed(content: bytes) -> bytes:
    """Return a list of publisher models, or one of them, with OpenAI's fields."""
    try:
        body = json.loads(content)
        if "publisherModels" in body or not body:
            rows = [_model_fields(row) for row in body.get("publisherModels", ())]
            return json_of({"object": "list", "data": rows})
        return json_of(_model_fields(body)) if "name" in body else content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content  # an error, or a foreign body: reported by the decoder


def _model_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    publisher, _, name = row["name"].removeprefix("publishers/").partition("/models/")
    return {**row, "id": name, "object": "model", "created": 0, "owned_by": publisher}
