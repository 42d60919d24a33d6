"""Turn OpenAI-shaped requests into Gemini's own wire form, and its answers into our objects.

https://ai.google.dev/api
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from specclient.errors import APIError, BadRequestError, NotFoundError
from specclient.providers.base import Endpoint, EventReader
from specclient.providers.encoding import decoded, json_of
from specclient.providers.faults import invalid
from specclient.providers.gemini_contents import contents_of
from specclient.providers.gemini_events import AnswerReader, NoAnswerError, body_of, completion_fields, read
from specclient.providers.gemini_settings import settings_of, with_extra
from specclient.providers.gemini_usage import usage_fields
from specclient.providers.openai import OpenAIDialect
from specclient.providers.shapes import checked
from specclient.providers.unsupported import refuse
from specclient.types.base import WireModel
from specclient.types.method import Method
from specclient.types.methods import CHAT, EMBEDDING
from specclient.types.model import Model
from specclient.types.named import named
from specclient.types.request import Request
from specclient.types.usage import Usage
from specclient.types.wire import WireReply, WireRequest

T = TypeVar("T")
Fields = dict[str, Any]

_MODELS = "models.list"
_MODEL = "models.retrieve"
_LISTED = "/models?pageSize=1000"  # as many as may be asked for; else they come in fifties
_COLLECTIONS = frozenset({"models", "tunedModels"})


class GeminiDialect:
    """What Gemini's own API speaks; see :class:`specclient.providers.Dialect`.

    Chats, embeddings and models are translated; calls by path (``client.post(…)``) go, and come back, as they
    are.
    """

    def __init__(self) -> None:
        self._plain = OpenAIDialect()  # of HTTP, all but path and body is the same

    def encode(self, request: Request, endpoint: Endpoint, model: str) -> WireRequest:
        name = request.method.name
        if name == CHAT.name:
            verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
            body = _chat_body(request, endpoint, model)
            return self._encoded(request, endpoint, model, f"{_path_of(model)}:{verb}", body)
        if name == EMBEDDING.name:
            body = _embedding_body(request, endpoint, model)
            return self._encoded(request, endpoint, model, f"{_path_of(model)}:batchEmbedContents", body)
        if name == _MODELS:
            return self._encoded(request, endpoint, model, _LISTED)
        if name == _MODEL:
            return self._encoded(request, endpoint, model, _path_of(request.places["model"]))
        if "." not in name:  # a call by path
            return self._plain.encode(request, endpoint, model)
        raise NotFoundError(
            f"provider {endpoint.name!r} speaks Gemini's own language and serves chat.completions.create, "
            f"embeddings.create, models.list and models.retrieve in it, not {name}; use one of them, or send "
            "to any path of its API by client.get() and client.post()"
        )

    def decode(self, method: Method, reply: WireReply) -> Any:
        gives = named(method.gives) if isinstance(method.gives, str) else method.gives
        fields_of = _FIELDS_OF.get(method.name)
        if fields_of is None or not (isinstance(gives, type) and issubclass(gives, WireModel)):
            return self._plain.decode(method, reply)
        return _read(reply, lambda body: read(gives, fields_of(body)))

    def events(self, method: Method) -> EventReader:
        return AnswerReader() if method.name == CHAT.name else self._plain.events(method)

    def usage(self, answer: Any) -> Usage | None:
        return self._plain.usage(answer)

    def encode_models(self, endpoint: Endpoint) -> WireRequest:
        return self.encode(Request(Method(name=_MODELS, verb="GET", path="/models")), endpoint, "")

    def decode_models(self, reply: WireReply) -> list[Model]:
        return _read(reply, lambda body: [read(Model, row) for row in _models_fields(body)["data"]])

    def _encoded(
        self, request: Request, endpoint: Endpoint, model: str, path: str, body: Fields | None = None
    ) -> WireRequest:
        """Return a request with this path and body, everything else being as it always is."""
        method = Method(name=request.method.name, verb="GET" if body is None else "POST", path=path)
        translated = replace(
            request,
            method=method,
            params={},
            places={},
            content=None if body is None else json_of(body),
            stream=False,
            options=replace(request.options, body={}),
        )
        return self._plain.encode(translated, endpoint, model)


def _path_of(model: str) -> str:
    """Return the path of a model: by its name, or by that with its collection, as ``tunedModels/NAME``."""
    collection, slash, name = model.partition("/")
    if not slash or collection not in _COLLECTIONS:
        collection, name = "models", model
    return f"/{collection}/{quote(name, safe='')}"


def _chat_body(request: Request, endpoint: Endpoint, model: str) -> Fields:
    def cannot(name: str, why: str) -> None:
        refuse(request, endpoint, [name], why=why)

    params = checked(decoded(request.params))
    system, contents = contents_of(params.get("messages"), cannot)
    settings = settings_of(params, model, cannot)
    body = {"contents": contents, **({"systemInstruction": system} if system else {}), **settings}
    return with_extra(body, request.options.body)


def _embedding_body(request: Request, endpoint: Endpoint, model: str) -> Fields:
    """Return a batch of one request a text; ``extra_body`` (``taskType``, ``title``) is for each of them."""
    params = decoded(request.params)
    refuse(request, endpoint, ["user"] if params.get("user") else [])
    texts = params.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadRequestError("input must be a text or a list of texts; Gemini takes no token ids")
    size = params.get("dimensions")
    asked = {} if size is None else {"outputDimensionality": size}
    name = _path_of(model).removeprefix("/")
    return {
        "requests": [
            {
                "model": name,
                "content": {"role": "user", "parts": [{"text": text}]},
                **asked,
                **request.options.body,
            }
            for text in texts
        ]
    }


def _embedding_fields(body: Fields) -> Fields:
    found = [body["embedding"]] if "embedding" in body else body.get("embeddings")
    entries = found if isinstance(found, list) else []
    vectors = [entry.get("values") if isinstance(entry, Mapping) else None for entry in entries]
    if not vectors or not all(map(_is_vector, vectors)):
        raise NoAnswerError("it has no embeddings")
    data = [
        {"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)
    ]
    counts = usage_fields(body.get("usageMetadata"))
    used = counts.get("prompt_tokens")
    usage = {} if used is None else {"usage": {"prompt_tokens": used, "total_tokens": used}}
    return {"object": "list", "data": data, **usage}


def _is_vector(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) for value in values)


def _models_fields(body: Fields) -> Fields:
    rows = body.get("models", None if body else [])  # an empty list is left out on the wire
    if not isinstance(rows, list):
        raise NoAnswerError("it has no models")
    return {"object": "list", "data": [_model_fields(row) for row in rows]}


def _model_fields(row: Any) -> Fields:
    name = row.get("name") if isinstance(row, Mapping) else None
    if not isinstance(name, str) or not name:
        raise NoAnswerError("a model without a name")
    return {**row, "id": name.removeprefix("models/"), "object": "model", "owned_by": "google"}


_FIELDS_OF: Mapping[str, Callable[[Fields], Fields]] = {
    CHAT.name: completion_fields,
    EMBEDDING.name: _embedding_fields,
    _MODELS: _models_fields,
    _MODEL: _model_fields,
}


def _read(reply: WireReply, make: Callable[[Fields], T]) -> T:
    """Return what ``make`` makes of an answer.

    Raises, with ``attempts`` noted and without the secrets of the request:
        APIResponseValidationError: for what is no such answer.
        APIError: that it is, where it is one.
    """
    failure: APIError
    try:
        return make(body_of(reply.content, reply.status))
    except APIError as error:
        failure = error
    except NoAnswerError as error:
        failure = invalid(reply.content, reply.status, error)
    try:
        reply.secrets().clean(failure)
        failure.attempts = reply.attempts
        raise failure
    finally:
        del failure  # else its traceback's frame holds it: a circle
