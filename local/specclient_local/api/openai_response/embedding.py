"""Responses of the embeddings API."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specclient.types.create_embedding_response import Usage

from specclient.types import CreateEmbeddingResponse, Embedding

if TYPE_CHECKING:
    from specclient_local.embedding.embedder import EmbeddedTexts, Vectors


def embedding_response(model: str, embedded: EmbeddedTexts, *, as_base64: bool) -> CreateEmbeddingResponse:
    """Return a response with one embedding for each text.

    Args:
        model: the model's name.
        embedded: vectors and token count.
        as_base64: whether vectors are base64 of little-endian float32, else numbers.
    """
    vectors = embedded.vectors
    stored = vectors.byteswap() if as_base64 and sys.byteorder == "big" else vectors
    # One vector at a time, so that other threads may run between two: there may be millions of numbers.
    encode: Callable[[Vectors], Any] = _packed if as_base64 else lambda row: row.tolist()
    data = [
        Embedding.model_construct(object="embedding", index=index, embedding=encode(row))
        for index, row in enumerate(stored)
    ]
    usage = Usage.model_construct(prompt_tokens=embedded.tokens, total_tokens=embedded.tokens)
    return CreateEmbeddingResponse.model_construct(object="list", model=model, data=data, usage=usage)


def _packed(vector: Vectors) -> str:
    return base64.b64encode(vector.tobytes()).decode()
