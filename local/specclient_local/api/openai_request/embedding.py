"""Parse a request for embeddings, with OpenAI's parameters and vLLM's ``truncate_prompt_tokens``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from specclient.errors import BadRequestError, UnsupportedParameterError
from specclient.types.request_limits import RequestLimits
from specclient_local.request.validation import bad_parameter, check, integer, optional, shown

#: Maximum characters of a request's texts for each of its allowed tokens. Ordinary texts have fewer, so
#: longer ones are refused before they are tokenised, which takes a hundred bytes of memory for each token.
CHARACTERS_PER_TOKEN = 32
#: Parameters that change nothing; accepted and ignored.
_NO_EFFECT = frozenset({"model", "user"})
_KNOWN = frozenset({"input", "dimensions", "encoding_format", "truncate_prompt_tokens", "prompt_name"})
_INPUT = "a string, a list of token ids, or a list of these, none of them empty"

EmbeddingText = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A parsed request.

    Attributes:
        inputs: texts, or token ids that are used as they are.
        dimensions: number of leading components of each embedding to return; None for all.
        as_base64: whether embeddings are returned as base64 of little-endian float32, else as numbers.
        truncate: number of tokens to which a longer input is cut, -1 for the model's maximum; None if not
            given.
        prompt_name: name of the prompt that is put before texts; None for the model's default.
    """

    inputs: tuple[EmbeddingText, ...]
    dimensions: int | None
    as_base64: bool
    truncate: int | None
    prompt_name: str | None


def parse_embedding(params: Mapping[str, Any], model: str, limits: RequestLimits) -> EmbeddingRequest:
    """Parse and validate a request.

    Args:
        params: the request's parameters; values that are None are ignored.
        model: the model's name, for error messages.
        limits: limits on requests.

    Raises:
        BadRequestError: a parameter has an invalid value, or there are more texts than the limits allow.
        UnsupportedParameterError: an unknown parameter.
    """
    given = {name: value for name, value in params.items() if value is not None}
    unknown = next((name for name in given if name not in _KNOWN | _NO_EFFECT), None)
    if unknown is not None:
        error = UnsupportedParameterError(
            f"{unknown}={shown(given[unknown])} is not supported by local/{model}, an embedding model; leave "
            "it out."
        )
        error.param = unknown
        raise error
    inputs = _inputs(given.get("input"))
    _check_size(inputs, limits)
    encoding = given.get("encoding_format", "float")
    check("encoding_format", encoding, "'float' or 'base64'", lambda value: value in ("float", "base64"))
    dimensions, truncate = given.get("dimensions"), given.get("truncate_prompt_tokens")
    check("dimensions", dimensions, "an integer of at least 1", optional(integer(1)))
    allowed = "-1 (as many as the model takes), or an integer of at least 1"
    check("truncate_prompt_tokens", truncate, allowed, lambda v: v is None or v == -1 or integer(1)(v))
    prompt_name = given.get("prompt_name")
    check("prompt_name", prompt_name, "the name of a prompt", lambda value: isinstance(value, str | None))
    return EmbeddingRequest(inputs, dimensions, encoding == "base64", truncate, prompt_name)


def _inputs(given: object) -> tuple[EmbeddingText, ...]:
    """Return the texts of an ``input``: one text or list of token ids, or a list of either."""
    if isinstance(given, str) or _are_ids(given):
        return (given,)
    if not isinstance(given, list | tuple) or not given:
        raise bad_parameter("input", given, _INPUT)
    for text in given:
        if not (isinstance(text, str) or _are_ids(text)):
            raise bad_parameter("input", text, _INPUT)
    return tuple(given)


def _are_ids(value: object) -> TypeGuard[Sequence[int]]:
    return isinstance(value, list | tuple) and bool(value) and all(map(integer(0), value))


def _check_size(inputs: Sequence[EmbeddingText], limits: RequestLimits) -> None:
    if len(inputs) > limits.embedding_inputs:
        raise too_large(
            f"input has {len(inputs)} texts; allowed are at most {limits.embedding_inputs} in a request",
            "embedding_inputs",
        )
    most = CHARACTERS_PER_TOKEN * limits.embedding_tokens
    size = sum(len(text) if isinstance(text, str) else CHARACTERS_PER_TOKEN * len(text) for text in inputs)
    if size > most:
        raise too_large(
            f"input has the size of {size} characters; allowed are at most {most} in a request",
            "embedding_tokens",
        )


def too_large(problem: str, limit: str) -> BadRequestError:
    """Return the error for a request beyond one of the limits.

    Args:
        problem: the size that is too large, and the allowed one.
        limit: the field of :class:`RequestLimits`.
    """
    error = BadRequestError(f"{problem}: send several requests, or raise {limit} in [server.requests].")
    error.param, error.code = "input", "too_many_inputs"
    return error
