"""HTTP status and OpenAI error object of each error.

An error response of an endpoint or an engine keeps its status. Other errors:

====================================  ======  =====================================================
no key for the provider in the server    401  ``provider_key_missing``; not 5xx, because a retry does not help
no model, provider or route              404  ``model_not_found``, or none
no candidate satisfies the policy        400  ``no_route``
prompt and answer exceed the context     400  ``context_length_exceeded``
the upstream cannot be reached           502  ``upstream_unreachable``; 504 where it did not answer in time
the upstream's answer cannot be read     502  ``upstream_invalid``
the upstream's circuit is open           503  ``upstream_resting``, with ``retry-after``
a hard budget cannot be counted          503  ``ledger_unavailable``, with ``retry-after``
the engine or the server failed          500
====================================  ======  =====================================================
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    BudgetExceededError,
    CircuitOpenError,
    ConfigurationError,
    ContextOverflowError,
    LedgerError,
    NoRouteError,
    OpenAIError,
)
from specclient.http_transport.retry import ADVICE_HEADER, DELAY_HEADERS, delay_headers, delay_of

#: Maximum characters of a message; some messages repeat an invalid value of any length.
MAX_MESSAGE = 2000
#: Seconds after which a client may try again while the ledger's database fails.
LEDGER_RETRY_S = 5
#: Number of traceback frames in the summary of an exception.
_FRAMES = 6

_RETRY_HEADERS = (*DELAY_HEADERS, ADVICE_HEADER)

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

#: Errors by class, the first that fits: status and code.
_KINDS: tuple[tuple[type[Exception], int, str | None], ...] = (
    (CircuitOpenError, 503, "upstream_resting"),
    (APITimeoutError, 504, "upstream_timeout"),
    (APIConnectionError, 502, "upstream_unreachable"),
    (APIResponseValidationError, 502, "upstream_invalid"),
    (APIError, 502, "upstream_error"),
    (NoRouteError, 400, "no_route"),
    (BudgetExceededError, 429, "insufficient_quota"),
    (ContextOverflowError, 400, "context_length_exceeded"),
    (ConfigurationError, 500, "server_misconfigured"),
)


@dataclass
class ServingError(Exception):
    """An answer that is an error.

    Attributes:
        status: HTTP status.
        message: text for people, without secrets.
        param: the invalid field of the request.
        code: identifier for programs.
        kind: OpenAI's ``type``; derived from the status if empty.
        headers: response headers.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    kind: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = self.kind or _TYPES.get(self.status) or _type_of_status(self.status)
        message = self.message if len(self.message) <= MAX_MESSAGE else f"{self.message[:MAX_MESSAGE]}…"
        return {"message": message, "type": kind, "param": self.param, "code": self.code}

    def body(self) -> bytes:
        """Return the response body."""
        return json.dumps({"error": self.error}).encode()


def bad_request(param: str | None, message: str, code: str | None = None) -> ServingError:
    """Return an error with status 400 for an invalid request."""
    return ServingError(400, message, param, code)


def shown(value: object) -> str:
    """Return a short text for an invalid value, which never contains a complete prompt."""
    if value is None:
        return "missing"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}…")
    kind, size = ("an object", "") if isinstance(value, dict) else ("an array", f" of {len(value)}")  # type: ignore[arg-type]
    return kind + size


def shutting_down() -> ServingError:
    """Return the error for requests that are interrupted by the shutdown."""
    return ServingError(503, "the server is shutting down", code="server_stopping")


def serving_error_of(error: Exception, now: Callable[[], float] = time.time) -> ServingError:
    """Return the response for an exception. The text of unexpected exceptions is not included.

    Args:
        now: returns seconds since the epoch, for an upstream that states an instant to retry at.
    """
    if isinstance(error, ServingError):
        return error
    if isinstance(error, APIStatusError):
        return _from_status(error, now)
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return _from_kind(error, status, code)
    if isinstance(error, LedgerError):  # whose text names the database
        return ServingError(
            503,
            "the call was not sent, because its budget cannot be counted while the server's ledger cannot be "
            "written; try again later",
            code="ledger_unavailable",
            headers={"retry-after": str(LEDGER_RETRY_S)},
        )
    if isinstance(error, OpenAIError):
        return ServingError(500, str(error))
    return ServingError(500, "internal server error; the server's log has the cause under the request's id")


def exception_summary(error: BaseException) -> str:
    """Return the type of an exception and where it was raised.

    Its text is omitted because it may contain a prompt.
    """
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = [f"{'/'.join(Path(at.filename).parts[-3:])}:{at.lineno} {at.name}" for at in reversed(frames)]
    return f"{type(error).__name__} at {' < '.join(places)}"


def _from_kind(error: Exception, status: int, code: str | None) -> ServingError:
    param, kind = None, ""
    if isinstance(error, APIError):
        code, param, kind = error.code or code, error.param, error.type or ""
    headers = {}
    if isinstance(error, BudgetExceededError):  # the type tells clients that a retry does not help
        kind, headers[ADVICE_HEADER] = "insufficient_quota", "false"
    if isinstance(error, CircuitOpenError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return ServingError(status, str(error), _text(param), code, _text(kind) or "", headers)


def _from_status(error: APIStatusError, now: Callable[[], float]) -> ServingError:
    status = error.status_code if 400 <= error.status_code < 600 else 502
    detail = error.body.get("message") if isinstance(error.body, Mapping) else None
    message = detail if isinstance(detail, str) and detail else error.message
    code = _text(error.code)
    if status == 404 and error.response is None and error.type is None:  # no type: a model or its provider
        code = code or "model_not_found"
    headers = {} if error.response is None else upstream_limit_headers(error.response.headers)
    delay = delay_of(error, now())
    if delay is not None:  # in every vendor's form, also in the body, which clients do not read
        headers |= delay_headers(delay)
    return ServingError(status, message, _text(error.param), code, _text(error.type) or "", headers)


def upstream_limit_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the rate-limit and retry headers of an upstream, which are passed on to the client."""
    return {
        lower: value
        for name, value in headers.items()
        if (lower := name.lower()).startswith("x-ratelimit-") or lower in _RETRY_HEADERS
    }


def _type_of_status(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
