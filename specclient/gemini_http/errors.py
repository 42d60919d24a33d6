"""Errors in the form of Google's APIs: https://google.aip.dev/193."""

from __future__ import annotations

from typing import Any

from specclient.openai_http.errors import ServingError
from specclient.providers.encoding import json_of

__all__ = ["error_body", "error_event"]

#: Names by HTTP status; others follow from the status's class.
_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_body(error: ServingError, _request_id: str = "") -> bytes:
    """Return the response body of an error."""
    return json_of(_error(error))


def error_event(error: ServingError) -> bytes:
    """Return the event of an error that ends a stream."""
    return b"data: %b\n\n" % json_of(_error(error))


def _error(error: ServingError) -> dict[str, Any]:
    name = _NAMES.get(error.status) or ("UNAVAILABLE" if error.status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": error.status, "message": error.error["message"], "status": name}}
