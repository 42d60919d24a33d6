"""Errors that arrive with a success status, in a body or as an event."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pydantic

from specclient.errors import APIError, APIResponseValidationError, status_error
from specclient.types.error_body import parse_error_body

_EXCERPT = 200

# The HTTP status that an error with status 200 would have had, by its type or code: those of OpenAI, of
# Anthropic ("Errors"), and of servers with other names.
_STATUS_OF_FAULT = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "InternalServerError": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    # AWS: of InvokeModel and Converse ("Errors"); in streams, they begin with a small letter.
    "ValidationException": 400,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ModelTimeoutException": 408,
    "ModelErrorException": 424,
    "ModelStreamErrorException": 424,
    "ModelNotReadyException": 429,
    "ServiceQuotaExceededException": 429,
    "ThrottlingException": 429,
    "InternalServerException": 500,
    "ServiceUnavailableException": 503,
}


def first_invalid_field(error: pydantic.ValidationError) -> str:
    """Return the first invalid field and the reason. Quotes nothing of the input."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"


def invalid_response_error(content: bytes, status: int | None, reason: object) -> APIResponseValidationError:
    """Return the error for a malformed response. The message quotes its beginning."""
    text = content.decode("utf-8", "replace")[:_EXCERPT]
    error = APIResponseValidationError(
        body=text, message=f"The response does not match the API ({reason}). It begins: {text!r}"
    )
    error.status_code = status
    return error


def raise_embedded_error(answer: pydantic.BaseModel) -> None:
    """Raise the error that some gateways add to an otherwise well-formed response, if any."""
    extra = answer.model_extra
    if extra and extra.get("error"):
        raise error_from(extra)


def embedded_error_of(content: bytes) -> APIError | None:
    """Return the error in a body, or None if the body is not an error."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(body, list) and len(body) == 1:
        body = body[0]  # Gemini
    if not isinstance(body, Mapping):
        return None
    is_error = body.get("error") or body.get("object") == "error" or body.get("message")
    return error_from(body) if is_error else None


def error_from(body: object) -> APIError:
    """Return the exception for a decoded error object. Its class follows from its status or type."""
    fault = parse_error_body(body)
    message = fault.message or f"An error without a message: {fault.body}"
    digits = fault.code or ""
    code = int(digits) if len(digits) == 3 and digits.isascii() and digits.isdigit() else 0
    status = code if 400 <= code < 600 else 0
    status = status or _status_of(fault.code) or _status_of(fault.type)
    error: APIError
    if status:
        error = status_error(status, message, body=fault.body)
        error.status_code = status
    else:
        error = APIError(message, body=fault.body)
    error.code, error.param, error.type = fault.code, fault.param, fault.type
    error.reported_status = status
    return error


def _status_of(name: str | None) -> int:
    """Return the status for an error's code or type; 0 if it is unknown."""
    found = _STATUS_OF_FAULT.get(name or "")
    return found or _STATUS_OF_FAULT.get((name or "")[:1].upper() + (name or "")[1:], 0)
