"""The wire dialect of Gemini's own API.

https://ai.google.dev/api
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from specclient.errors import APIError, NotFoundError
from specclient.providers.dialects import EventReader
from specclient.providers.encoding import decoded, json_of
from specclient.providers.endpoint import Endpoint
from specclient.providers.errors import invalid_response_error
from specclient.providers.gemini.embeddings import embedding_batch, embedding_fields, vertex_embedding
from specclient.providers.gemini.messages import contents_of
from specclient.providers.gemini.params import settings_of, with_extra_body
from specclient.providers.gemini.response import (
    InvalidGeminiResponseError,
    body_of,
    completion_fields,
    read,
)
from specclient.providers.gemini.stream import GeminiStreamReader
from specclient.providers.openai.dialect import OpenAIDialect
from specclient.providers.unsupported import refuse_unsupported
from specclient.providers.validation import checked_params
from specclient.types.api_method import ApiMethod
from specclient.types.base import WireModel
from specclient.types.inference_methods import CHAT, EMBEDDING
from specclient.types.model import Model
from specclient.types.named import named
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireRequest, WireResponse

T = TypeVar("T")
GeminiFields = dict[str, Any]

_MODELS = "models.list"
_MODEL = "models.retrieve"
_LISTED = "/models?pageSize=1000"  # the maximum; the default page size is 50
_COLLECTIONS = frozenset({"models", "tunedModels"})


class GeminiDialect:
    """The wire dialect of Gemini's own API; see :class:`specclient.providers.Dialect`.

    Chats, embeddings and models are translated. Calls by path (``client.post(…)``) and their responses are
    not.
    """

    def __init__(self) -> None:
        self._plain = OpenAIDialect()  # for URLs, headers, options and calls by path

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        name = request.method.name
        if name == CHAT.name:
            verb = "streamGenerateContent" if request.stream else "generateContent"
            written = request.native("gemini")
            body = _chat_body(request, endpoint, model) if written is None else dict(written.body)
            path = _path(endpoint, model, verb) + ("?alt=sse" if request.stream else "")
            return self._encoded(request, endpoint, model, path, body)
        if name == EMBEDDING.name and endpoint.place is not None:
            verb, body = vertex_embedding(request, endpoint, model)
            return self._encoded(request, endpoint, model, _path(endpoint, model, verb), body)
        if name == EMBEDDING.name:
            body = embedding_batch(request, endpoint, _path_of(model).removeprefix("/"))
            return self._encoded(request, endpoint, model, f"{_path_of(model)}:batchEmbedContents", body)
        if name == _MODELS:
            return self._encoded(request, endpoint, model, _LISTED)
        if name == _MODEL:
            return self._encoded(request, endpoint, model, _path_of(request.path_params["model"]))
        if "." not in name:  # a call by path
            return self._plain.encode(request, endpoint, model)
        raise NotFoundError(
            f"provider {endpoint.name!r} uses Gemini's own API and serves chat.completions.create, "
            f"embeddings.create, models.list and models.retrieve in it, not {name}; use one of them, or send "
            "to any path of its API by client.get() and client.post()"
        )

    def decode(self, method: ApiMethod, reply: WireResponse) -> Any:
        response_type = (
            named(method.response_type) if isinstance(method.response_type, str) else method.response_type
        )
        fields_of = _FIELDS_OF.get(method.name)
        if fields_of is None or not (
            isinstance(response_type, type) and issubclass(response_type, WireModel)
        ):
            return self._plain.decode(method, reply)
        return _read(reply, lambda body: read(response_type, fields_of(body)))

    def events(self, method: ApiMethod) -> EventReader:
        return GeminiStreamReader() if method.name == CHAT.name else self._plain.events(method)

    def usage(self, answer: Any) -> Usage | None:
        return self._plain.usage(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return self.encode(Request(ApiMethod(name=_MODELS, verb="GET", path="/models")), endpoint, "")

    def decode_models(self, reply: WireResponse) -> list[Model]:
        return _read(reply, lambda body: [read(Model, row) for row in _models_fields(body)["data"]])

    def _encoded(
        self, request: Request, endpoint: Endpoint, model: str, path: str, body: GeminiFields | None = None
    ) -> WireRequest:
        """Return the wire request with this path and body, and the usual URL, headers and options."""
        method = ApiMethod(name=request.method.name, verb="GET" if body is None else "POST", path=path)
        translated = replace(
            request,
            method=method,
            params={},
            path_params={},
            content=None if body is None else json_of(body),
            stream=False,
            options=replace(request.options, body={}),
        )
        return self._plain.encode(translated, endpoint, model)


def _path(endpoint: Endpoint, model: str, verb: str) -> str:
    """Return the path of a call to a model: Gemini's own, or that in Vertex AI."""
    if endpoint.place is not None:
        return endpoint.place.path(endpoint.base_url, model, verb)
    return f"{_path_of(model)}:{verb}"


def _path_of(model: str) -> str:
    """Return the path of a model, given by its name or with its collection (``tunedModels/NAME``)."""
    collection, slash, name = model.partition("/")
    if not slash or collection not in _COLLECTIONS:
        collection, name = "models", model
    return f"/{collection}/{quote(name, safe='')}"


def _chat_body(request: Request, endpoint: Endpoint, model: str) -> GeminiFields:
    def cannot(name: str, why: str) -> None:
        refuse_unsupported(request, endpoint, [name], why=why)

    params = checked_params(decoded(request.params))
    system, contents = contents_of(params.get("messages"), cannot)
    settings = settings_of(params, model.rpartition("/")[2], cannot)
    body = {"contents": contents, **({"systemInstruction": system} if system else {}), **settings}
    body = with_extra_body(body, request.options.body)
    cached = body.get("cachedContent")
    if endpoint.place is not None and isinstance(cached, str):
        body["cachedContent"] = endpoint.place.resource_name(cached)
    return body


def _models_fields(body: GeminiFields) -> GeminiFields:
    rows = body.get("models", None if body else [])  # an empty list is omitted on the wire
    if not isinstance(rows, list):
        raise InvalidGeminiResponseError("it has no models")
    return {"object": "list", "data": [_model_fields(row) for row in rows]}


def _model_fields(row: Any) -> GeminiFields:
    name = row.get("name") if isinstance(row, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidGeminiResponseError("a model without a name")
    return {**row, "id": name.removeprefix("models/"), "object": "model", "owned_by": "google"}


_FIELDS_OF: Mapping[str, Callable[[GeminiFields], GeminiFields]] = {
    CHAT.name: completion_fields,
    EMBEDDING.name: embedding_fields,
    _MODELS: _models_fields,
    _MODEL: _model_fields,
}


def _read(reply: WireResponse, make: Callable[[GeminiFields], T]) -> T:
    """Return the result of ``make`` for a response's decoded body.

    The errors carry ``attempts``, and no secrets of the request.

    Raises:
        APIResponseValidationError: the response is malformed.
        APIError: the response is an error.
    """
    failure: APIError
    try:
        return make(body_of(reply.content, reply.status))
    except APIError as error:
        failure = error
    except InvalidGeminiResponseError as error:
        failure = invalid_response_error(reply.content, reply.status, error)
    try:
        reply.secrets().clean(failure)
        failure.attempts = reply.attempts
        raise failure
    finally:
        del failure  # otherwise a reference cycle: its traceback holds this frame
