"""Embeddings in Gemini's API and in Vertex AI.

https://ai.google.dev/api/embeddings,
https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.errors import BadRequestError
from specclient.providers.encoding import decoded
from specclient.providers.endpoint import Endpoint
from specclient.providers.gemini.response import InvalidGeminiResponseError
from specclient.providers.gemini.usage import usage_fields
from specclient.providers.reported_fields import count
from specclient.providers.unsupported import refuse_unsupported
from specclient.types.request import Request

EmbeddingFields = dict[str, Any]

#: Fields of an instance of ``predict``, by their names in ``embedContent``; all others are parameters.
_OF_INSTANCE = {"taskType": "task_type", "task_type": "task_type", "title": "title"}


def embedding_batch(request: Request, endpoint: Endpoint, model: str) -> EmbeddingFields:
    """Return the body of ``batchEmbedContents``: a request per text, each with ``extra_body``.

    Args:
        request: a call of ``embeddings.create``.
        endpoint: its endpoint.
        model: the model with its collection (``models/NAME``).

    Raises:
        BadRequestError: the input is no text.
        UnsupportedParameterError: a parameter has no equivalent.
    """
    texts, size = _input(request, endpoint)
    return {
        "requests": [{"model": model, **_content(text), **size, **request.options.body} for text in texts]
    }


def vertex_embedding(request: Request, endpoint: Endpoint, model: str) -> tuple[str, EmbeddingFields]:
    """Return verb and body of an embedding in Vertex AI; see :func:`embedding_batch`.

    Gemini models have ``embedContent``, and ``batchEmbedContents`` for several texts; others ``predict``.
    """
    texts, size = _input(request, endpoint)
    extra = request.options.body
    if "gemini" in model:
        config = {"embedContentConfig": {**size, **extra}} if size or extra else {}
        if len(texts) == 1:
            return "embedContent", {**_content(texts[0]), **config}
        return "batchEmbedContents", {"requests": [{**_content(text), **config} for text in texts]}
    of_instance = {_OF_INSTANCE[name]: value for name, value in extra.items() if name in _OF_INSTANCE}
    parameters = size | {name: value for name, value in extra.items() if name not in _OF_INSTANCE}
    body: EmbeddingFields = {"instances": [{"content": text, **of_instance} for text in texts]}
    return "predict", body | ({"parameters": parameters} if parameters else {})


def embedding_fields(body: EmbeddingFields) -> EmbeddingFields:
    """Return the fields of OpenAI's embeddings, from a response of any of the verbs.

    Raises:
        InvalidGeminiResponseError: it has no embeddings.
    """
    counts = usage_fields(body.get("usageMetadata"))
    used = counts.get("prompt_tokens")
    found = [body["embedding"]] if "embedding" in body else body.get("embeddings")
    if "predictions" in body:
        found = [each.get("embeddings") for each in body["predictions"] if isinstance(each, Mapping)]
        used = _predicted_tokens(found)
    entries = found if isinstance(found, list) else []
    vectors = [entry.get("values") if isinstance(entry, Mapping) else None for entry in entries]
    if not vectors or not all(map(_is_vector, vectors)):
        raise InvalidGeminiResponseError("it has no embeddings")
    data = [
        {"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)
    ]
    usage = {} if used is None else {"usage": {"prompt_tokens": used, "total_tokens": used}}
    return {"object": "list", "data": data, **usage}


def _input(request: Request, endpoint: Endpoint) -> tuple[list[str], EmbeddingFields]:
    """Return the texts, and the field of the dimensions."""
    params = decoded(request.params)
    refuse_unsupported(request, endpoint, ["user"] if params.get("user") else [])
    texts = params.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadRequestError("input must be a text or a list of texts; Gemini takes no token ids")
    size = params.get("dimensions")
    return texts, {} if size is None else {"outputDimensionality": size}


def _content(text: str) -> EmbeddingFields:
    return {"content": {"role": "user", "parts": [{"text": text}]}}


def _predicted_tokens(entries: list[Any]) -> int | None:
    """Return the sum of the tokens of predictions; None if one has no count."""
    total = 0
    for entry in entries:
        statistics = entry.get("statistics") if isinstance(entry, Mapping) else None
        stated = statistics.get("token_count") if isinstance(statistics, Mapping) else None
        tokens = count(int(stated)) if isinstance(stated, float) and stated.is_integer() else count(stated)
        if tokens is None:
            return None
        total += tokens
    return total


def _is_vector(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) for value in values)
