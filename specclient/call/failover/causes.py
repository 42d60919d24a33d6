"""Turn what ended a try of a routed call into who may be asked instead: anybody, some, or nobody."""

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
    UnsupportedParameterError,
)
from specclient.providers import Endpoint
from specclient.routing.destinations import Destination
from specclient.transport.retry import is_quota_spent

__all__ = [
    "FailoverScope",
    "context_window_of",
    "error_label",
    "failover_scope",
    "is_context_overflow",
    "rejected_before_send",
]

#: Who may be asked after an error: any other route, those of other providers, those with a longer context;
#: or nobody, since everybody would answer the same.
FailoverScope = Literal["any", "elsewhere", "longer", "nobody"]

#: The first row that an error is of decides. What stands in no row is nobody's fault but the request's.
SCOPE_BY_ERROR: tuple[tuple[type[OpenAIError], FailoverScope], ...] = (
    (APIConnectionError, "any"),  # no answer, a timeout, a deadline too near, an open circuit
    (APIResponseValidationError, "any"),
    (RateLimitError, "any"),
    (InternalServerError, "any"),
    (ConflictError, "any"),
    (NotFoundError, "any"),  # no such model there, or no such method
    (UnsupportedParameterError, "any"),  # another endpoint may be able to express it
    (BudgetExceededError, "any"),  # of this provider, or another route costs less
    (AuthenticationError, "elsewhere"),
    (PermissionDeniedError, "elsewhere"),
    (ConfigurationError, "elsewhere"),  # a key that is missing, an engine that is not installed
    (ContextOverflowError, "longer"),
    (EngineError, "any"),
)
#: Statuses without a class of their own: payment required, request timeout, too large, too early.
SCOPE_BY_STATUS: Mapping[int, FailoverScope] = {402: "elsewhere", 408: "any", 413: "longer", 425: "any"}
#: How an error says that the prompt is too long: OpenAI's and llama.cpp's codes, and what Anthropic, Gemini,
#: vLLM, SGLang and others write where they have none.
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW = re.compile(
    r"context (length|window|size)|prompt is too long|input is too long|longer than the model|"
    r"exceeds? the (maximum|available) (number of tokens|context|input)|too many (input )?tokens",
    re.IGNORECASE,
)


def failover_scope(error: BaseException | None) -> FailoverScope:
    """Return who may be asked after an error."""
    if not isinstance(error, OpenAIError):
        return "nobody"
    if isinstance(error, RateLimitError) and is_quota_spent(error):
        return "elsewhere"
    if isinstance(error, APIConnectionError) and error.closed:
        return "nobody"
    for kind, found in SCOPE_BY_ERROR:
        if isinstance(error, kind):
            return found
    if is_context_overflow(error):
        return "longer"
    return SCOPE_BY_STATUS.get(getattr(error, "status_code", None) or 0, "nobody")


def is_context_overflow(error: BaseException) -> bool:
    """Tell whether an endpoint says that prompt and answer do not fit into its model's context."""
    if not isinstance(error, BadRequestError):
        return False
    told = {error.code, error.type} & _OVERFLOW_CODES
    return bool(told or _OVERFLOW.search(error.message))


def rejected_before_send(error: BaseException) -> bool:
    """Tell whether a try was refused on this side, which says least of what is wrong."""
    if isinstance(error, APIConnectionError):
        return not error.sent
    if isinstance(error, APIStatusError):
        return error.response is None
    return not isinstance(error, APIError | EngineError)


def error_label(error: BaseException) -> str:
    """Return an error's name, with its status where it has one; never its text, which may quote a prompt."""
    name = type(error).__name__
    if isinstance(error, APIStatusError) and error.response is not None:
        return f"{name} {error.status_code}"
    return name


def context_window_of(place: Destination, model: str) -> int | None:
    """Return the tokens a model's context holds, None where unknown; may read the price catalogue's file."""
    if not isinstance(place, Endpoint):
        return next((each.context for each in place.models() if each.id == model), None)
    if place.price_provider is None:
        return None
    from specclient.prices.catalogue import find_model  # noqa: PLC0415 - after an overflow alone

    found = find_model(place.price_provider, model)
    return None if found is None else found.model.context_window
