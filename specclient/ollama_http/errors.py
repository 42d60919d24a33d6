"""Errors in Ollama's form: https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

from specclient.openai_http.errors import ServingError
from specclient.providers.encoding import json_of

__all__ = ["error_body"]


def error_body(error: ServingError) -> bytes:
    """Return the response body of an error, and the last line of a stream that fails."""
    return json_of({"error": error.error["message"]})
