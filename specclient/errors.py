"""Turn everything that can go wrong into one tree of exceptions, named as the OpenAI client names them.

OpenAIError
├── APIError                      message, body, code, param, type
│   ├── APIConnectionError        no answer, or one that broke off; ``partial`` holds the text so far
│   │   ├── APITimeoutError
│   │   │   └── DeadlineExceededError       also a SpecClientError: ``deadline_s`` is over
│   │   └── CircuitOpenError                also a SpecClientError: not sent, the deployment keeps failing
│   ├── APIResponseValidationError
│   └── APIStatusError            status_code, request_id, response
│       ├── BadRequestError            400
│       │   └── UnsupportedParameterError   refused before sending
│       ├── AuthenticationError        401
│       │   └── OAuthError                  a token was not exchanged
│       ├── PermissionDeniedError      403
│       ├── NotFoundError              404
│       ├── ConflictError              409
│       ├── UnprocessableEntityError   422
│       ├── RateLimitError             429
│       └── InternalServerError        5xx
├── LengthFinishReasonError       an answer cut by the length limit, where a parsed one was asked for
├── ContentFilterFinishReasonError      one withheld by the content filter
├── SubjectTokenProviderError     the user's own source of tokens failed
├── WebSocketConnectionClosedError      a socket closed with messages unsent
├── WebSocketQueueFullError       more unsent messages than the queue holds
└── SpecClientError               ours, beneath the same root
    ├── ConfigurationError        also a ValueError: a setting, file or argument that cannot be used
    ├── BudgetExceededError       the call would cost more than a budget has left
    ├── NoRouteError              no candidate satisfies the policy
    ├── EngineError               the local engine
    │   ├── CheckpointError       a folder that is no usable checkpoint, or two that do not fit together
    │   └── ContextOverflowError  more tokens than the context holds
    └── LedgerError               a ledger that cannot be read
InvalidWebhookSignatureError      a ValueError, as there

Every one can be pickled and copied, whatever its constructor takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

__all__ = [
    "APIConnectionError", "APIError", "APIResponseValidationError", "APIStatusError", "APITimeoutError",
    "AuthenticationError", "BadRequestError", "BudgetExceededError", "CheckpointError", "CircuitOpenError",
    "ConfigurationError", "ConflictError", "ContentFilterFinishReasonError", "ContextOverflowError",
    "DeadlineExceededError", "EngineError", "InternalServerError", "InvalidWebhookSignatureError",
    "LedgerError", "LengthFinishReasonError", "NoRouteError", "NotFoundError", "OAuthError", "OpenAIError",
    "PermissionDeniedError", "RateLimitError", "SpecClientError", "SubjectTokenProviderError",
    "UnprocessableEntityError", "UnsupportedParameterError", "WebSocketConnectionClosedError",
    "WebSocketQueueFullError", "status_error",
]  # fmt: skip


def _rebuilt(cls: type[OpenAIError], args: tuple[Any, ...], state: dict[str, Any]) -> OpenAIError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class OpenAIError(Exception):
    """The root: catch this to catch everything this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception's own way calls the class with ``args``, which keyword-only arguments do not survive.
        return _rebuilt, (type(self), self.args, self.__dict__.copy())


class SpecClientError(OpenAIError):
    """What this package adds to the OpenAI client's errors."""


class APIError(OpenAIError):
    """A call to a model failed.

    Attributes:
        message: one sentence for a person.
        body: the decoded error object of the answer, its text, or None without an answer.
        request: the request as sent, where there was one.
        code, param, type: the fields of OpenAI's error object, where the body had them.
        attempts: tries that were made, the first included.
        partial: the text received before a stream broke off, else None.
    """

    message: str
    body: object | None
    code: str | None = None
    param: str | None = None
    type: str | None = None
    attempts: int = 1
    partial: str | None = None

    def __init__(self, message: str, request: Any = None, *, body: object | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.request = request
        self.body = body
        if isinstance(body, Mapping):
            code = body.get("code")
            self.code = None if code is None else str(code)
            self.param = body.get("param")
            self.type = body.get("type")


class APIConnectionError(APIError):
    """No answer came, or a stream broke off.

    Attributes:
        sent: whether the last try may have reached the server, and so may have been billed.
        closed: whether the client was closed beneath it.
    """

    sent: bool = True
    closed: bool = False

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


class DeadlineExceededError(APITimeoutError, SpecClientError):
    """All the tries of a call, and the waits between them, took as long as ``deadline_s`` allows.

    Its cause (``__cause__``) is the last failure, where a try had failed.
    """


class CircuitOpenError(APIConnectionError, SpecClientError):
    """A request was not sent: its deployment has failed so often in a row that it is given a rest.

    Attributes:
        deployment: ``provider/model``.
        retry_after_s: seconds until a request is let through to see whether it works again.
    """

    sent = False

    def __init__(self, message: str, *, deployment: str, retry_after_s: float) -> None:
        super().__init__(message=message)
        self.deployment = deployment
        self.retry_after_s = retry_after_s


class APIResponseValidationError(APIError):
    """An answer arrived that is not what the endpoint promises (no JSON, wrong shape)."""

    def __init__(
        self, response: Any = None, body: object | None = None, *, message: str | None = None
    ) -> None:
        super().__init__(
            message or "Data returned by API invalid for expected schema.",
            _request_of(response),
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
        super().__init__(message, _request_of(response), body=body)
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


class OAuthError(AuthenticationError):
    """A token was not exchanged for one of the API's (RFC 6749, section 5.2).

    Attributes:
        error: the error's name there: ``invalid_grant``, ``invalid_subject_token``, …
    """

    def __init__(self, *, response: Any = None, body: object | None = None) -> None:
        fields = body if isinstance(body, Mapping) else {}
        said = fields.get("error_description")
        message = said if isinstance(said, str) and said else "OAuth authentication error."
        super().__init__(message, response=response, body=body)
        self.error: str | None = fields.get("error")


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


class LengthFinishReasonError(OpenAIError):
    """An answer that was to be parsed was cut by the length limit.

    Attributes:
        completion: the answer as it came; of a stream, without ``usage``.
    """

    def __init__(self, *, completion: Any) -> None:
        used = f" - {completion.usage}" if completion.usage else ""
        super().__init__(f"Could not parse response content as the length limit was reached{used}")
        self.completion = completion


class ContentFilterFinishReasonError(OpenAIError):
    """An answer that was to be parsed was withheld by the content filter.

    Attributes:
        completion: the answer as it came, where it is known.
    """

    def __init__(self, *, completion: Any = None) -> None:
        super().__init__("Could not parse response content as the request was rejected by the content filter")
        self.completion = completion


class InvalidWebhookSignatureError(ValueError):
    """A webhook's signature is not the one that its body and the secret give."""


class SubjectTokenProviderError(OpenAIError):
    """The user's own source of tokens failed.

    Attributes:
        response: what the source was answered, where it was.
    """

    def __init__(self, message: str, *, response: Any = None) -> None:
        super().__init__(message)
        self.response = response


class WebSocketConnectionClosedError(OpenAIError):
    """A socket closed before everything was sent.

    Attributes:
        unsent_frames: what was not sent, as it would have been, in order.
        unsent_messages: the same as text, without what is none.
    """

    def __init__(self, message: str, *, unsent_messages: Sequence[str | bytes]) -> None:
        super().__init__(message)
        self.unsent_frames: list[str | bytes] = _HiddenItems(unsent_messages)
        texts = map(_as_text, unsent_messages)
        self.unsent_messages: list[str] = _HiddenItems([text for text in texts if text is not None])


class WebSocketQueueFullError(OpenAIError):
    """More unsent messages than the queue of a socket may hold."""


class _HiddenItems(list[Any]):
    """A list whose repr does not show what is in it: a crash reporter prints an error's attributes."""

    def __repr__(self) -> str:
        return f"[{len(self)} not shown]"


def _as_text(frame: str | bytes) -> str | None:
    if isinstance(frame, str):
        return frame
    try:
        return frame.decode()
    except UnicodeDecodeError:
        return None


def _request_of(response: Any) -> Any:
    try:
        return response.request
    except (AttributeError, RuntimeError):  # RuntimeError: httpx, of a response made without one
        return None


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
    error = cls(message, response=response, body=body)
    error.status_code = status
    return error


class ConfigurationError(SpecClientError, ValueError):
    """A setting, file or argument that cannot be used; the message names it, and the way out."""


class BudgetExceededError(SpecClientError):
    """A call was refused, before it was sent, because it could cost more than a budget has left.

    Attributes:
        budget: its name; None where the budget has none.
        limit, spent, reserved: of the budget, the last for calls under way; ``estimate``: what this call may
            come to at most. All in dollars (Decimal), or all in tokens (int).
        resets_at: when the budget begins anew; None where it never does.
    """

    def __init__(
        self,
        message: str,
        *,
        budget: str | None = None,
        limit: Any = None,
        spent: Any = None,
        reserved: Any = None,
        estimate: Any = None,
        resets_at: datetime | None = None,
    ) -> None:
        super().__init__(message)
        self.budget = budget
        self.limit = limit
        self.spent = spent
        self.reserved = reserved
        self.estimate = estimate
        self.resets_at = resets_at


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
