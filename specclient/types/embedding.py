"""Embedding responses."""

from __future__ import annotations

from typing import Literal

from specclient.types.base import Lenient, WireModel
from specclient.types.call import MeteredModel

EmbeddingModel = str


class Embedding(WireModel):
    """The vector of one input: floats, or base64 of little-endian 32-bit floats if requested."""

    embedding: Lenient[list[float]]
    index: int
    object: Literal["embedding"]


class Usage(WireModel):
    """The token counts of the inputs."""

    prompt_tokens: int
    total_tokens: int


class CreateEmbeddingResponse(MeteredModel):
    """The response of ``embeddings.create``.

    https://platform.openai.com/docs/api-reference/embeddings/object
    """

    data: list[Embedding]
    model: str
    object: Literal["list"]
    usage: Usage
