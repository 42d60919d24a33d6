"""Which errors are failed over, and to which routes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    BudgetExceededError,
    ConfigurationError,
    ConflictError,
    ContextOverflowError,
    EngineError,
    InternalServerError,
    NotFoundError,
    OpenAIError,
    PermissionDeniedError,
    RateLimitError,
    ResponseTooLargeError,
    UnsupportedParameterError,
)
from specclient.http_transport.retry import is_quota_spent

__all__ = [
    "FailoverScope",
    "error_label",
    "failover_scope",
    "is_context_overflow",
    "rejected_before_send",
]

#: The routes that can succeed after an error: any other route, those of other providers, those with a longer
#: context; or none, because every route would fail alike.
FailoverScope = Literal["any", "other_provider", "longer_context", "none"]

#: The first row that an error is an instance of applies. Errors not listed are not failed over.
SCOPE_BY_ERROR: tuple[tuple[type[OpenAIError], FailoverScope], ...] = (
    (APIConnectionError, "any"),  # no answer, a timeout, a passed deadline, an open circuit
    (APIResponseValidationError, "any"),
    (ResponseTooLargeError, "any"),
    (RateLimitError, "any"),
    (InternalServerError, "any"),
    (ConflictError, "any"),
    (NotFoundError, "any"),  # the endpoint lacks the model or the method
    (UnsupportedParameterError, "any"),  # another endpoint may support the parameter
    (BudgetExceededError, "any"),  # a provider's budget, or another route costs less
    (AuthenticationError, "other_provider"),
    (PermissionDeniedError, "other_provider"),
    (ConfigurationError, "other_provider"),  # a missing key, an engine that is not installed
    (ContextOverflowError, "longer_context"),
    (EngineError, "any"),
)
#: Statuses without an error class: payment required, request timeout, content too large, too early.
SCOPE_BY_STATUS: Mapping[int, FailoverScope] = {
    402: "other_provider",
    408: "any",
    413: "longer_context",
    425: "any",
}
#: How errors report that a prompt is too long: the codes of OpenAI and llama.cpp; the texts of Anthropic,
#: Gemini, vLLM, SGLang and others, which have no code, and of gateways, which quote the code (LiteLLM).
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_TEXT = re.compile(
    r"context[ _](length|window|size)|prompt is too long|input is too long|longer than the model|"
    r"exceeds? the (maximum|available) (number of tokens|context|input)|too many (input )?tokens",
    re.IGNORECASE,
)
#: How LiteLLM's proxy and ``transformers serve`` report, with status 400, that they do not have a model.
_UNKNOWN_MODEL_TEXT = re.compile(r"invalid model name passed in model=|server is pinned to '", re.IGNORECASE)


def failover_scope(error: BaseException | None) -> FailoverScope:
    """Return which routes can succeed after an error."""
    if not isinstance(error, OpenAIError):
        return "none"
    if isinstance(error, RateLimitError) and is_quota_spent(error):
        return "other_provider"
    if isinstance(error, APIConnectionError) and error.closed:
        return "none"
    for error_class, scope in SCOPE_BY_ERROR:
        if isinstance(error, error_class):
            return scope
    if is_context_overflow(error):
        return "longer_context"
    if isinstance(error, BadRequestError) and _UNKNOWN_MODEL_TEXT.search(error.message):
        return "any"
    return SCOPE_BY_STATUS.get(getattr(error, "status_code", None) or 0, "none")


def is_context_overflow(error: BaseException) -> bool:
    """Return whether an endpoint reports that prompt and answer do not fit into the model's context."""
    if not isinstance(error, BadRequestError):
        return False
    codes = {error.code, error.type} & _OVERFLOW_CODES
    return bool(codes or _OVERFLOW_TEXT.search(error.message))


def rejected_before_send(error: BaseException) -> bool:
    """Return whether the client itself refused the request; an error from a server is more informative."""
    if isinstance(error, APIConnectionError):
        return not error.sent
    if isinstance(error, APIStatusError):
        return error.response is None
    return not isinstance(error, APIError | EngineError)


def error_label(error: BaseException) -> str:
    """Return an error's class name and status, without its message, which may quote a prompt."""
    name = type(error).__name__
    if isinstance(error, APIStatusError) and error.response is not None:
        return f"{name} {error.status_code}"
    return name
