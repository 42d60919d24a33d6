"""The exceptions of the package, in one tree, named as in the OpenAI client.

OpenAIError
├── APIError                      message, body, code, param, type
│   ├── APIConnectionError        no response, or it broke off; ``partial`` holds the text so far
│   │   ├── APITimeoutError
│   │   │   └── DeadlineExceededError       also a SpecClientError: ``deadline_s`` has passed
│   │   └── CircuitOpenError                also a SpecClientError: not sent, as the deployment keeps failing
│   ├── APIResponseValidationError
│   ├── ResponseTooLargeError     also a SpecClientError: longer than a limit of the client's
│   └── APIStatusError            status_code, request_id, response
│       ├── BadRequestError            400
│       │   └── UnsupportedParameterError   refused before sending
│       ├── AuthenticationError        401
│       │   ├── OAuthError                  a token exchange failed
│       │   └── CredentialsError            also a SpecClientError: a cloud's gave no token
│       ├── PermissionDeniedError      403
│       ├── NotFoundError              404
│       ├── ConflictError              409
│       ├── UnprocessableEntityError   422
│       ├── RateLimitError             429
│       └── InternalServerError        5xx
├── LengthFinishReasonError       an answer to be parsed reached the length limit
├── ContentFilterFinishReasonError      an answer to be parsed was blocked by the content filter
├── SubjectTokenProviderError     the user's token provider failed
├── WebSocketConnectionClosedError      a WebSocket closed before all messages were sent
├── WebSocketQueueFullError       the queue of unsent messages is full
└── SpecClientError               errors that only this package has
    ├── ConfigurationError        also a ValueError: an invalid setting, file or argument
    ├── BudgetExceededError       the call could cost more than a budget has left
    ├── NoRouteError              no candidate satisfies the policy
    ├── EngineError               the local engine
    │   ├── CheckpointError       a checkpoint cannot be used, or draft and target do not match
    │   └── ContextOverflowError  prompt and answer exceed the context
    └── LedgerError               the ledger cannot be opened or read
InvalidWebhookSignatureError      a ValueError, as in the OpenAI client

All of them can be pickled and copied. Pickles hold no request bodies unless
``OpenAIError.pickle_request_bodies`` is set.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

__all__ = [
    "APIConnectionError", "APIError", "APIResponseValidationError", "APIStatusError", "APITimeoutError",
    "AuthenticationError", "BadRequestError", "BudgetExceededError", "CheckpointError", "CircuitOpenError",
    "ConfigurationError", "ConflictError", "ContentFilterFinishReasonError", "ContextOverflowError",
    "CredentialsError", "DeadlineExceededError", "EngineError", "InternalServerError",
    "InvalidWebhookSignatureError", "LedgerError", "LengthFinishReasonError", "NoRouteError",
    "NotFoundError", "OAuthError", "OpenAIError", "PermissionDeniedError", "RateLimitError",
    "ResponseTooLargeError", "SpecClientError", "SubjectTokenProviderError", "UnprocessableEntityError",
    "UnsupportedParameterError", "WebSocketConnectionClosedError", "WebSocketQueueFullError",
    "status_error",
]  # fmt: skip


_E = TypeVar("_E", bound="OpenAIError")


def _rebuilt(cls: type[_E], args: tuple[Any, ...], state: dict[str, Any]) -> _E:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class OpenAIError(Exception):
    """The base class of all exceptions that this package raises on purpose.

    Attributes:
        pickle_request_bodies: whether pickles of errors hold the bodies of their requests. By default they do
            not, because process pools, task queues and crash reporters store pickles, and bodies hold
            prompts. Set it on the class for all errors, or on one error. Copies by ``copy`` are complete.
    """

    pickle_request_bodies: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ calls the class with ``args``, which loses keyword-only arguments.
        state = self.__dict__.copy() if self.pickle_request_bodies else self._state_without_prompts()
        return _rebuilt, (type(self), self.args, state)

    def __copy__(self) -> Self:
        return _rebuilt(type(self), self.args, self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        args, state = copy.deepcopy((self.args, self.__dict__), memo)
        return _rebuilt(type(self), args, state)

    def _state_without_prompts(self) -> dict[str, Any]:
        """Return the attributes for a pickle, without the bodies of requests and unsent messages."""
        state = self.__dict__.copy()
        if (request := state.get("request")) is not None:
            state["request"] = _without_body(request)
        if (response := state.get("response")) is not None:
            state["response"] = _without_request_body(response)
        for name in ("unsent_frames", "unsent_messages"):
            if name in state:
                state[name] = _HiddenItems()
        return state


def _without_body(request: Any) -> Any:
    """Return an HTTP library's request without its body; method, URL and headers stay."""
    try:
        body = request.content
    except (AttributeError, RuntimeError):  # RuntimeError: httpx, a body that was not read is not pickled
        return request
    return type(request)(request.method, request.url, headers=request.headers) if body else request


def _without_request_body(response: Any) -> Any:
    """Return an HTTP library's response with a request that has no body; so have those of its redirects."""
    if (request := _request_of(response)) is None:
        return response
    bare = copy.copy(response)
    bare.request = _without_body(request)
    bare.history = [_without_request_body(each) for each in getattr(response, "history", ())]
    return bare


class SpecClientError(OpenAIError):
    """The base class of the errors that the OpenAI client does not have."""


class APIError(OpenAIError):
    """A call to a model failed.

    Attributes:
        message: one sentence that describes the failure.
        body: the decoded error object of the response, or its text; None without a response.
        request: the request as sent, or None.
        code, param, type: the fields of OpenAI's error object, if the body has them.
        attempts: the number of attempts, including the first.
        partial: the text received before a stream broke off, or None.
        reported_status: of an error in the body, or in an event, of a response with status 200: the status
            that it stands for, 0 if that is unknown. None for other errors.
    """

    message: str
    body: object | None
    code: str | None = None
    param: str | None = None
    type: str | None = None
    attempts: int = 1
    partial: str | None = None
    reported_status: int | None = None

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
    """There was no response, or a stream broke off.

    Attributes:
        sent: whether the last attempt may have reached the server and been billed.
        closed: whether the client was closed during the call.
    """

    sent: bool = True
    closed: bool = False

    def __init__(
        self, *, message: str = "Connection error.", request: Any = None, partial: str | None = None
    ) -> None:
        super().__init__(message, request, body=None)
        self.partial = partial


class APITimeoutError(APIConnectionError):
    """The response did not arrive in time."""

    def __init__(
        self, request: Any = None, *, message: str = "Request timed out.", partial: str | None = None
    ) -> None:
        super().__init__(message=message, request=request, partial=partial)


class DeadlineExceededError(APITimeoutError, SpecClientError):
    """The attempts of a call and the waits between them reached ``deadline_s``.

    Its cause (``__cause__``) is the error of the last failed attempt, if there was one.
    """


class CircuitOpenError(APIConnectionError, SpecClientError):
    """A request was not sent, because its deployment failed repeatedly and its circuit is open.

    Attributes:
        deployment: ``provider/model``.
        retry_after_s: seconds until one request is sent to test the deployment.
    """

    sent = False

    def __init__(self, message: str, *, deployment: str, retry_after_s: float) -> None:
        super().__init__(message=message)
        self.deployment = deployment
        self.retry_after_s = retry_after_s


class APIResponseValidationError(APIError):
    """A response is not what the API specifies: invalid JSON, or another structure."""

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


class ResponseTooLargeError(APIError, SpecClientError):
    """A response exceeds one of the client's limits, so the rest of it was not read. It is not retried.

    Attributes:
        setting: the name of the limit, a field of :class:`specclient.ResponseLimits`.
        limit: its value.
        read: the bytes that were read, decompressed: of the body, or of the event.
    """

    def __init__(self, message: str, *, setting: str, limit: float, read: int) -> None:
        super().__init__(message)
        self.setting = setting
        self.limit = limit
        self.read = read


class APIStatusError(APIError):
    """A response with a status of 400 or more.

    Attributes:
        status_code: the status; that of the class if the request was refused before it was sent.
        request_id: the provider's id of the request (``x-request-id``), or None.
        response: the response as the transport received it, or None.
    """

    status_code: int = 0

    def __init__(self, message: str, *, response: Any = None, body: object | None = None) -> None:
        super().__init__(message, _request_of(response), body=body)
        self.response = response
        self.request_id: str | None = None
        if response is not None:
            self.status_code = response.status_code
            self.request_id = request_id_in(response.headers)


class BadRequestError(APIStatusError):
    """400: the request is invalid."""

    status_code = 400


class UnsupportedParameterError(BadRequestError):
    """A parameter is not supported by the chosen endpoint; the request was not sent."""


class AuthenticationError(APIStatusError):
    """401: the key is missing or wrong."""

    status_code = 401


class OAuthError(AuthenticationError):
    """The exchange of a token for one of the API's failed (RFC 6749, section 5.2).

    Attributes:
        error: the error code of the RFC: ``invalid_grant``, ``invalid_subject_token``, …
    """

    def __init__(self, *, response: Any = None, body: object | None = None) -> None:
        fields = body if isinstance(body, Mapping) else {}
        description = fields.get("error_description")
        message = (
            description if isinstance(description, str) and description else "OAuth authentication error."
        )
        super().__init__(message, response=response, body=body)
        self.error: str | None = fields.get("error")


class CredentialsError(AuthenticationError, SpecClientError):
    """The credentials of a cloud are missing, expired or refused; the request was not sent.

    Its message has neither tokens nor keys. It is not retried.
    """


class PermissionDeniedError(APIStatusError):
    """403: the key lacks the permission."""

    status_code = 403


class NotFoundError(APIStatusError):
    """404: the model or route does not exist."""

    status_code = 404


class ConflictError(APIStatusError):
    """409: the resource was changed by another request."""

    status_code = 409


class UnprocessableEntityError(APIStatusError):
    """422: the request is well formed but cannot be processed."""

    status_code = 422


class RateLimitError(APIStatusError):
    """429: a rate limit is reached, or the quota is used up (``code == "insufficient_quota"``)."""

    status_code = 429


class InternalServerError(APIStatusError):
    """5xx: the server failed."""

    status_code = 500


class LengthFinishReasonError(OpenAIError):
    """An answer that should be parsed was cut off by the length limit.

    Attributes:
        completion: the incomplete answer; without ``usage`` if it was streamed.
    """

    def __init__(self, *, completion: Any) -> None:
        used = f" - {completion.usage}" if completion.usage else ""
        super().__init__(f"Could not parse response content as the length limit was reached{used}")
        self.completion = completion


class ContentFilterFinishReasonError(OpenAIError):
    """An answer that should be parsed was blocked by the content filter.

    Attributes:
        completion: the answer as received, or None.
    """

    def __init__(self, *, completion: Any = None) -> None:
        super().__init__("Could not parse response content as the request was rejected by the content filter")
        self.completion = completion


class InvalidWebhookSignatureError(ValueError):
    """The signature of a webhook does not match its body and the secret."""


class SubjectTokenProviderError(OpenAIError):
    """The user's token provider failed.

    Attributes:
        response: the response that the provider received, or None.
    """

    def __init__(self, message: str, *, response: Any = None) -> None:
        super().__init__(message)
        self.response = response


class WebSocketConnectionClosedError(OpenAIError):
    """A WebSocket closed before all messages were sent.

    Attributes:
        unsent_frames: the unsent frames, in order.
        unsent_messages: the unsent frames that are text.
    """

    def __init__(self, message: str, *, unsent_messages: Sequence[str | bytes]) -> None:
        super().__init__(message)
        self.unsent_frames: list[str | bytes] = _HiddenItems(unsent_messages)
        texts = map(_as_text, unsent_messages)
        self.unsent_messages: list[str] = _HiddenItems([text for text in texts if text is not None])


class WebSocketQueueFullError(OpenAIError):
    """The queue of unsent messages of a WebSocket is full."""


class _HiddenItems(list[Any]):
    """A list that hides its items in its repr, because crash reporters print an error's attributes."""

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
    except (AttributeError, RuntimeError):  # RuntimeError: an httpx response that was made without a request
        return None


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of a request from the headers of its response, or None.

    Args:
        headers: names in lower case, or a library's headers, which ignore the case.
    """
    return headers.get("x-request-id") or headers.get("request-id") or headers.get("x-amzn-requestid")


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
    """Return the exception for an HTTP status, without raising it."""
    cls = InternalServerError if status >= 500 else _BY_STATUS.get(status, APIStatusError)
    error = cls(message, response=response, body=body)
    error.status_code = status
    return error


class ConfigurationError(SpecClientError, ValueError):
    """A setting, file or argument is invalid; the message names it and what is allowed."""


class BudgetExceededError(SpecClientError):
    """A call was refused before it was sent, because it could cost more than a budget has left.

    All amounts are in US dollars (Decimal), or in tokens (int) if the budget limits tokens.

    Attributes:
        budget: the budget's name, or None.
        limit: the budget's limit.
        spent: the amount used by finished calls.
        reserved: the amount reserved by unfinished calls.
        estimate: the most that this call could use.
        resets_at: the start of the budget's next period; None if it has no period.
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
        decision: the decision, with every candidate and the reason why it was refused; or None.
    """

    def __init__(self, message: str, *, decision: Any = None) -> None:
        super().__init__(message)
        self.decision = decision


class EngineError(SpecClientError):
    """The local engine failed, or cannot serve the request."""


class CheckpointError(EngineError, ValueError):
    """A checkpoint cannot be used, or a draft does not match its target."""


class ContextOverflowError(EngineError, ValueError):
    """Prompt and answer together have more tokens than the model's context."""


class LedgerError(SpecClientError):
    """The ledger cannot be opened or read."""
