"""Errors in Anthropic's form: https://platform.claude.com/docs/en/api/errors."""

from __future__ import annotations

from typing import Any

from specclient.openai_http.errors import ServingError
from specclient.providers.encoding import json_of

__all__ = ["error_body", "error_event"]

#: Types by status; others follow from the status's class.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OWN = frozenset({*_TYPES.values(), "api_error"})


def error_body(error: ServingError, request_id: str) -> bytes:
    """Return the response body of an error."""
    return json_of({**_error(error), "request_id": request_id})


def error_event(error: ServingError) -> bytes:
    """Return the event of an error that ends a stream."""
    return b"event: error\ndata: %b\n\n" % json_of(_error(error))


def _error(error: ServingError) -> dict[str, Any]:
    """Return the error with the type that its status implies, or that an Anthropic upstream has given."""
    kind = _TYPES.get(error.status)
    if kind is None and error.kind in _OWN:
        kind = error.kind
    if kind is None:
        kind = "api_error" if error.status >= 500 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": error.error["message"]}}
