"""The resource ``client.embeddings``: convert texts to vectors."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from specclient.errors import APIResponseValidationError
from specclient.resources.base import Resource, build_request
from specclient.resources.signatures import with_signature
from specclient.resources.traced_methods import traceable
from specclient.types.create_params import EmbeddingCreateParams
from specclient.types.inference_methods import EMBEDDING
from specclient.types.params import is_given
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.types import CreateEmbeddingResponse

EmbeddingInput = str | Iterable[str] | Iterable[int] | Iterable[Iterable[int]]


def _request(
    model: str, text: EmbeddingInput, params: Mapping[str, Any]
) -> tuple[Request, Callable[[CreateEmbeddingResponse], CreateEmbeddingResponse] | None]:
    """Return the request, and the function that converts the vectors to the requested encoding, if needed.

    The request asks for base64 by default: it is a third of the size of JSON numbers and much faster to
    decode.
    """
    chosen = params.get("encoding_format")
    if not chosen or not is_given(chosen):
        params = {**params, "encoding_format": "base64"}
        return build_request(EMBEDDING, {"model": model, "input": text, **params}), _unpacked
    request = build_request(EMBEDDING, {"model": model, "input": text, **params})
    return request, _packed if chosen == "base64" else None


class InvalidEmbeddingError(APIResponseValidationError, ValueError):
    """The answer holds no vectors; a ValueError, too, as in the OpenAI client."""


def _unpacked(answer: CreateEmbeddingResponse) -> CreateEmbeddingResponse:
    if not answer.data:
        raise InvalidEmbeddingError(message="No embedding data received: the answer holds no vector")
    return _converted(answer, _numbers_of)


def _packed(answer: CreateEmbeddingResponse) -> CreateEmbeddingResponse:
    """Encode vectors as base64, for servers that send only numbers, such as Gemini."""
    return _converted(answer, _base64_of)


def _converted(answer: CreateEmbeddingResponse, convert: Callable[[Any], Any]) -> CreateEmbeddingResponse:
    try:
        for embedding in answer.data:
            embedding.embedding = convert(embedding.embedding)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        reason = type(error).__name__
    else:
        return answer
    raise InvalidEmbeddingError(
        message=f"The response does not match the API: a vector is invalid ({reason})"
    )


def _numbers_of(packed: Any) -> Any:
    if not isinstance(packed, str):  # some servers ignore the encoding and send numbers
        return packed
    numbers = array("f", base64.b64decode(packed))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _base64_of(numbers: Any) -> Any:
    if not isinstance(numbers, list):
        return numbers
    vector = array("f", numbers)
    if sys.byteorder == "big":
        vector.byteswap()
    return base64.b64encode(vector.tobytes()).decode()


class AsyncEmbeddings(Resource):
    """``client.embeddings``."""

    is_async, resource_name = True, "embeddings"

    @traceable
    @with_signature("input model", EmbeddingCreateParams)
    async def create(
        self, *, input: EmbeddingInput, model: str, **params: Unpack[EmbeddingCreateParams]  # noqa: A002
    ) -> CreateEmbeddingResponse:  # fmt: skip
        """Convert texts to vectors.

        Args:
            input: a text or its token ids; or several of either.
            model: ``provider/model``, or a bare name (the default provider's).
            params: see :class:`EmbeddingCreateParams`.

        Returns:
            One embedding for each text: a list of numbers, or base64 with ``encoding_format="base64"``.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        request, into = _request(model, input, params)
        answer: CreateEmbeddingResponse = await self.caller.call(request, into)
        return answer


class Embeddings(Resource):
    """``client.embeddings`` of the synchronous client."""

    resource_name = "embeddings"

    @traceable
    @with_signature("input model", EmbeddingCreateParams)
    def create(
        self, *, input: EmbeddingInput, model: str, **params: Unpack[EmbeddingCreateParams]  # noqa: A002
    ) -> CreateEmbeddingResponse:  # fmt: skip
        """Convert texts to vectors; see :meth:`AsyncEmbeddings.create`."""
        request, into = _request(model, input, params)
        answer: CreateEmbeddingResponse = self.caller.call(request, into)
        return answer
