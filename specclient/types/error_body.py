"""Turn the decoded body of a failure, in any vendor's shape, into its message, type, code and parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an endpoint says went wrong.

    Attributes:
        message: its own words for people, None where it gives none.
        type, code, param: the fields of OpenAI's error object, from wherever the vendor keeps them.
        body: the error object itself: the inner ``error`` where there is one, else the body as it came.
    """

    message: str | None
    type: str | None
    code: str | None
    param: str | None
    body: object


def parse_error_body(body: object) -> ErrorBody:
    """Read the error object out of a decoded body; anything unknown becomes a Fault without fields.

    Understood: OpenAI, Anthropic and vLLM ``{"error": {…}}``, Gemini's ``{"error": {…, "status"}}`` (also
    wrapped in a list, as its OpenAI endpoint sends it), the flat object of SGLang and TensorRT-LLM,
    ``{"error": "text", "error_type"}`` of TGI and mlx-lm, and ``{"detail": …}`` of Mistral and FastAPI.
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
        message=_words(inner.get("message", inner.get("detail"))),
        type=_text(inner.get("type", inner.get("status"))),
        code=_text(inner.get("code")),
        param=_text(inner.get("param")),
        body=inner,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _words(value: object) -> str | None:
    """Return a sentence; no list of validation errors, which quote the input."""
    return value if isinstance(value, str) and value else None
