"""Reads the message, type, code and parameter of an error response, in the formats of all vendors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The content of an error response.

    Attributes:
        message: the endpoint's message, or None.
        type, code, param: the fields of OpenAI's error object, from the corresponding fields of the vendor.
        body: the inner ``error`` object, or the complete body if there is none.
    """

    message: str | None
    type: str | None
    code: str | None
    param: str | None
    body: object


def parse_error_body(body: object) -> ErrorBody:
    """Return the error object of a decoded body; of an unknown format, one without fields.

    Known formats: OpenAI, Anthropic and vLLM ``{"error": {…}}``, Gemini's ``{"error": {…, "status"}}`` (also
    wrapped in a list, as its OpenAI endpoint sends it), the flat object of SGLang and TensorRT-LLM,
    ``{"error": "text", "error_type"}`` of TGI and mlx-lm, ``{"detail": …}`` of Mistral and
    FastAPI, and ``{"message": …}`` or ``{"Message": …}`` of AWS, which names the type in a header.
    """
    if isinstance(body, list) and body and isinstance(body[0], Mapping):
        body = body[0]
    if not isinstance(body, Mapping):
        return ErrorBody(body if isinstance(body, str) and body else None, None, None, None, body)
    inner = body.get("error", body)
    if isinstance(inner, str):
        return ErrorBody(inner, _text(body.get("error_type")), _text(body.get("code")), None, body)
    if not isinstance(inner, Mapping):
        inner = body
    return ErrorBody(
        message=_words(inner.get("message", inner.get("detail", inner.get("Message")))),
        type=_text(inner.get("type", inner.get("status"))),
        code=_text(inner.get("code")),
        param=_text(inner.get("param")),
        body=inner,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _words(value: object) -> str | None:
    """Return a text; None for a list of validation errors, which quote the input."""
    return value if isinstance(value, str) and value else None
