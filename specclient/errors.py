"""Turn everything that can go wrong into one tree of exceptions, named as the OpenAI client names them.

OpenAIError
├── APIError                      message, body, code, param, type
│   ├── APIConnectionError        no answer, or one that broke off; ``partial`` holds the text so far
│   │   └── APITimeoutError
│   ├── APIResponseValidationError
│   └── APIStatusError            status_code, request_id, response
│       ├── BadRequestError            400
│       │   └── UnsupportedParameterError   refused before sending
│       ├── AuthenticationError        401
│       ├── PermissionDeniedError      403
│       ├── NotFoundError              404
│       ├── ConflictError              409
│       ├── UnprocessableEntityError   422
│       ├── RateLimitError             429
│       └── InternalServerError        5xx
└── SpecClientError               ours, beneath the same root
    ├── ConfigurationError        also a ValueError: a setting, file or argument that cannot be used
    ├── NoRouteError              no candidate satisfies the policy
    ├── EngineError               the local engine
    │   ├── CheckpointError       a folder that is no usable checkpoint, or two that do not fit together
    │   └── ContextOverflowError  more tokens than the context holds
    └── LedgerError               a ledger that cannot be read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AuthenticationError",
    "BadRequestError",
    "CheckpointError",
    "ConfigurationError",
    "ConflictError",
    "ContextOverflowError",
    "EngineError",
    "InternalServerError",
    "LedgerError",
    "NoRouteError",
    "NotFoundError",
    "OpenAIError",
    "PermissionDeniedError",
    "RateLimitError",
    "SpecClientError",
    "UnprocessableEntityError",
    "UnsupportedParameterError",
    "status_error",
]


class OpenAIError(Exception):
    """The root: catch this to catch everything this package raises on purpose."""


class APIError(OpenAIError):
    """A call to a model failed.

    Attributes:
        message: one sentence for a person.
        body: the decoded error object of the answer, its text, or None without an answer.
        request: the request as sent, where there was one.
        code, param, type: the fields of OpenAI's error object, where the body had them.
        attempts: tries that were made, the first included.
    """

    message: str
    body: object | None
    code: str | None = None
    param: str | None = None
    type: str | None = None
    attempts: int = 1

    def __init__(self, message: str, request: Any = None, *, body: object | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.request = request
        self.body = body
        if isinstance(body, Mapping):
            self.code = body.get("code")
            self.param = body.get("param")
            self.type = body.get("type")


class APIConnectionError(APIError):
    """No answer came, or a stream broke off.

    Attributes:
        partial: the text received before a stream broke off, else None.
    """

    def __init__(
        self, *, message: str = "Connection error.", request: Any = None, partial: str | None = None
    ) -> None:
        super().__init__(message, request, body=None)
        self.partial = partial


class APITimeoutError(APIConnectionError):
    """The answer did not come in time."""

    def __init__(
        self, request: Any = None, *, message: str = "Request timed out.", partial: str | None = None
    ) -> None:
        super().__init__(message=message, request=request, partial=partial)


class APIResponseValidationError(APIError):
    """An answer arrived that is not what the endpoint promises (no JSON, wrong shape)."""

    def __init__(
        self, response: Any = None, body: object | None = None, *, message: str | None = None
    ) -> None:
        super().__init__(
            message or "Data returned by API invalid for expected schema.",
            getattr(response, "request", None),
            body=body,
        )
        self.response = response
        self.status_code: int | None = getattr(response, "status_code", None)


class APIStatusError(APIError):
    """An answer with a status of 400 or more.

    Attributes:
        status_code: of the answer; the class's own where a request was refused before it was sent.
        request_id: the provider's id of the request (``x-request-id``), or None.
        response: the answer as the transport received it, or None where none was.
    """

    status_code: int = 0

    def __init__(self, message: str, *, response: Any = None, body: object | None = None) -> None:
        super().__init__(message, getattr(response, "request", None), body=body)
        self.response = response
        self.request_id: str | None = None
        if response is not None:
            self.status_code = response.status_code
            self.request_id = response.headers.get("x-request-id") or response.headers.get("request-id")


class BadRequestError(APIStatusError):
    """400: the request cannot be served as it is."""

    status_code = 400


class UnsupportedParameterError(BadRequestError):
    """A parameter that the chosen endpoint cannot express, refused before sending."""


class AuthenticationError(APIStatusError):
    """401: no key, or a wrong one."""

    status_code = 401


class PermissionDeniedError(APIStatusError):
    """403: the key may not do this."""

    status_code = 403


class NotFoundError(APIStatusError):
    """404: no such model or route."""

    status_code = 404


class ConflictError(APIStatusError):
    """409: the resource changed meanwhile."""

    status_code = 409


class UnprocessableEntityError(APIStatusError):
    """422: understood, and refused."""

    status_code = 422


class RateLimitError(APIStatusError):
    """429: too many requests or tokens, or a spent quota (``code == "insufficient_quota"``)."""

    status_code = 429


class InternalServerError(APIStatusError):
    """5xx: the server failed."""

    status_code = 500


_BY_STATUS: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: UnprocessableEntityError,
    429: RateLimitError,
}


def status_error(
    status: int, message: str, *, response: Any = None, body: object | None = None
) -> APIStatusError:
    """Return (not raise) the exception a status stands for."""
    cls = InternalServerError if status >= 500 else _BY_STATUS.get(status, APIStatusError)
    return cls(message, response=response, body=body)


class SpecClientError(OpenAIError):
    """What this package adds to the OpenAI client's errors."""


class ConfigurationError(SpecClientError, ValueError):
    """A setting, file or argument that cannot be used; the message names it, and the way out."""


class NoRouteError(SpecClientError):
    """No candidate satisfies the policy.

    Attributes:
        decision: every candidate with the reason it was left, where one was made.
    """

    def __init__(self, message: str, *, decision: Any = None) -> None:
        super().__init__(message)
        self.decision = decision


class EngineError(SpecClientError):
    """The local engine could not do what it was asked."""


class CheckpointError(EngineError, ValueError):
    """A folder that is no usable checkpoint, or a draft that does not fit its target."""


class ContextOverflowError(EngineError, ValueError):
    """Prompt and answer together exceed the model's context."""


class LedgerError(SpecClientError):
    """A ledger that cannot be opened or read."""
