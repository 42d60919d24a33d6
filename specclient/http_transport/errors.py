"""Errors of the transport: from HTTP libraries' exceptions and error responses, with every key removed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from specclient.errors import (
    APIConnectionError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    status_error,
)
from specclient.http_transport.causes import httpx_cause, httpx_request
from specclient.http_transport.clients.timeouts import AnswerTimeoutError
from specclient.types.error_body import ErrorBody, parse_error_body
from specclient.types.wire import Secrets, WireRequest

_EXCERPT, _NOT_FOUND = 200, 404
_POOL, _READ = ("pool", "No connection to {origin} became free"), ("read", "{origin} sent nothing")
_TIMEOUTS = {
    "ConnectTimeout": ("connect", "No connection to {origin} was made"),
    "ReadTimeout": _READ,
    "WriteTimeout": ("write", "{origin} did not accept the request"),
    "PoolTimeout": _POOL,
    "ConnectionTimeoutError": _POOL,  # aiohttp's
}
#: Exceptions raised before the whole request was sent: the names of httpx, aiohttp and Python.
_UNSENT = frozenset(
    {
        "ClientConnectionResetError",
        "ClientConnectorError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectionRefusedError",
        "ConnectionTimeoutError",
        "InvalidURL",
        "LocalProtocolError",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
        "WriteError",
        "WriteTimeout",
        "gaierror",
    }
)

#: For error types of AWS whose class does not follow from the status of the response: the status that does.
_STATUS_OF_TYPE: Mapping[str | None, int] = {"ServiceQuotaExceededException": 429}


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL. The rest must not be shown, because it can contain a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def transport_exceptions(library: str) -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean an HTTP attempt failed.

    Args:
        library: the client's package, ``httpx`` or ``httpx2``. A library that is not imported raises nothing,
            nor does one that another thread is importing.
    """
    of_library = _imported(library, "HTTPError", "StreamError")
    of_aiohttp = _imported("aiohttp", "ClientError")  # does the I/O; httpx-aiohttp maps most of its errors
    return (OSError, *of_library, *of_aiohttp)


def _imported(library: str, *names: str) -> list[type[BaseException]]:
    """Return those of a library's exceptions that are there already; importing it takes a while."""
    module = sys.modules.get(library)
    found = (getattr(module, name, None) for name in names)
    return [each for each in found if each is not None]


def connection_failure(
    error: BaseException, request: WireRequest, limits: Any, *, begun: bool
) -> APIConnectionError:
    """Return the error for an attempt without a response, or with an interrupted one.

    Raise it outside the ``except`` block: the library's exception contains keys in places that cannot all be
    reached, so nothing may refer to it. The message gives its type and text, and the error's cause is a copy
    without keys; see :mod:`.causes`.

    Args:
        error: the HTTP library's exception.
        request: the request as sent.
        limits: the time limits in force, with ``connect``, ``read``, ``write``, ``pool`` in seconds.
        begun: whether the response's headers had been received.
    """
    secrets = secrets_of(request, error)
    shown = shown_request(error, request, secrets)
    origin, limit = origin_of(request.url), _exceeded_limit(error)
    cause = error.__cause__ or error
    text = secrets.redact(_text_of(cause))
    failure: APIConnectionError
    if limit is None:
        message = _broken_text(request, cause, text, begun=begun)
        failure = APIConnectionError(message=message, request=shown)
    else:
        seconds = getattr(limits, limit, None)
        failure = APITimeoutError(shown, message=_timeout_text(origin, error, limit, seconds))
    failure.sent = begun or _was_sent(error)
    failure.__cause__ = httpx_cause(error, text, shown, timed_out=limit, unsent=not failure.sent)
    return failure


def _exceeded_limit(error: BaseException) -> str | None:
    """Return the time limit that was exceeded; None if the exception is no timeout."""
    if isinstance(error, AnswerTimeoutError):
        return "read"
    return _TIMEOUTS.get(type(error).__name__, _READ)[0] if _is_timeout(error) else None


def _timeout_text(origin: str, error: BaseException, limit: str, seconds: float | None) -> str:
    """Return the message of an exceeded time limit."""
    if isinstance(error, AnswerTimeoutError):
        found = f"{origin} {error}"
    else:
        what = _TIMEOUTS.get(type(error).__name__, _READ)[1].format(origin=origin)
        found = f"{what} within the {limit} timeout of {seconds} s"
    return f"Request timed out. {found}; pass a larger timeout= if it needs longer."


def _broken_text(request: WireRequest, cause: BaseException, text: str, *, begun: bool) -> str:
    """Return the message of a connection that failed."""
    origin = origin_of(request.url)
    reason = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    if begun:
        return f"Connection error. The answer of {origin} broke off ({reason})."
    hint = request.start_hint or "Check that the server is running and that base_url is right."
    return f"Connection error. No answer from {origin} ({reason}). {hint}"


def client_closed(request: WireRequest) -> APIConnectionError:
    """Return the error for a request whose client was closed while it ran."""
    error = APIConnectionError(
        message="Connection error. The client was closed before the answer of "
        f"{origin_of(request.url)} was complete."
    )
    error.closed = True
    return error


def status_error_of(response: Any, content: bytes, request: WireRequest) -> APIStatusError:
    """Return the error for a response with a status other than 2xx.

    Message, body and fields equal those of the OpenAI client for the same bytes. Only the field meant for
    people goes into the message, because the rest may quote the prompt. For vendors that name this field
    differently, :func:`parse_error_body` finds it.

    Args:
        response: the HTTP library's response; the error carries a copy without keys.
        content: the whole body.
        request: the request as sent.
    """
    secrets = secrets_of(request, response)
    text, body = _shown_body(content, secrets)
    parsed = ErrorBody(None, None, None, None, body) if isinstance(body, str) else parse_error_body(body)
    status: int = response.status_code
    named = response.headers.get("x-amzn-errortype", "").partition(":")[0] or None  # AWS
    is_foreign = status == _NOT_FOUND and isinstance(body, str)  # of a proxy that has no such path
    hint = f" {request.start_hint}" if request.start_hint and is_foreign else ""
    error = status_error(
        _STATUS_OF_TYPE.get(named, status),
        f"Error code: {status}" + (f" - {parsed.message}" if parsed.message else "") + hint,
        response=_shown_response(response, text, request, secrets),
        body=body.get("error", body) if isinstance(body, Mapping) else body,
    )
    error.code, error.param, error.type = (
        error.code or parsed.code,
        error.param or parsed.param,
        error.type or parsed.type or named,
    )
    return error


def not_a_stream(response: Any, content: bytes, request: WireRequest) -> APIResponseValidationError:
    """Return the error for an HTML page in response to a request for a stream of events."""
    secrets = secrets_of(request, response)
    text = secrets.redact(content.decode("utf-8", "replace"))
    kind = response.headers.get("content-type")
    return APIResponseValidationError(
        _shown_response(response, text, request, secrets),
        text[:_EXCERPT],
        message=f"{origin_of(request.url)} answered with {kind!r} instead of a stream of events; "
        f"check base_url. The answer begins: {text[:_EXCERPT]!r}",
    )


def secrets_of(request: WireRequest, carrier: Any) -> Secrets:
    """Return the secrets of a request, including those that the user's client has added to it.

    Args:
        request: the request before it was sent.
        carrier: the library's exception or response, which refers to the request as sent.
    """
    headers = list(request.headers.items())
    queries = [request.url.partition("?")[2]]
    for earlier in (*getattr(carrier, "history", ()), carrier):  # redirects
        if (sent := _request_of(earlier)) is not None:
            headers += sent.headers.items()
            queries.append(sent.url.query.decode("ascii", "replace"))
    return Secrets(headers, "&".join(queries))


def _request_of(carrier: Any) -> Any:
    try:
        return carrier.request
    except (AttributeError, RuntimeError):  # RuntimeError: httpx, where none was set
        return None


def _text_of(error: BaseException) -> str:
    """Return the message of an exception. The text of aiohttp's on bad HTTP contains the whole URL."""
    message = getattr(error, "message", None)
    return message if isinstance(message, str) else str(error)


def _is_timeout(error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        return True
    cause = error.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp."):
        return isinstance(
            cause, TimeoutError
        )  # httpx-aiohttp raises ConnectTimeout for a reset connection, too
    return any(cls.__name__ == "TimeoutException" for cls in type(error).__mro__)


def _was_sent(error: BaseException) -> bool:
    """Return whether an attempt without a response may have reached the server."""
    cause = error.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp."):
        error = cause  # httpx-aiohttp raises ConnectTimeout for a reset connection, too
    return _UNSENT.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _shown_body(content: bytes, secrets: Secrets) -> tuple[str, object]:
    """Return a body without secrets, as text and decoded."""
    text = content.decode("utf-8", "replace")
    try:
        body: object = json.loads(text)
    except (ValueError, RecursionError):
        text = secrets.redact(text)
        return text, text.strip()
    shown = secrets.redact(body)
    # Serialized again: a search in the JSON text would miss an escaped secret.
    return (text, body) if shown == body else (json.dumps(shown), shown)


def printable_body(request: WireRequest) -> bytes | None:
    """Return the request's body, or None if that would mean reading the user's file."""
    return request.content if isinstance(request.content, bytes) else None


def shown_request(carrier: Any, request: WireRequest, secrets: Secrets) -> Any:
    """Return a request without secrets, as the HTTP library's object.

    Args:
        carrier: the library's exception or response, which may refer to the request as sent.
    """
    content = printable_body(request)
    return _shown_request(carrier, content, secrets) or httpx_request(request, content, secrets)


def _shown_request(carrier: Any, content: bytes | None, secrets: Secrets) -> Any:
    """Return a copy without secrets of the request that a library's exception or response refers to."""
    sent = _request_of(carrier)
    if sent is None:
        return None
    return type(sent)(
        sent.method,
        secrets.url(str(sent.url)),
        headers=[
            (name.encode(), secrets.header(name, value).encode())
            for name, value in sent.headers.multi_items()
        ],
        content=content,
    )


def _encoded(text: str, charset: str | None) -> bytes:
    """Return a text in the charset of a response, or in UTF-8 if that is no text encoding (``base64``)."""
    with contextlib.suppress(LookupError, ValueError):
        return text.encode(charset or "utf-8", "replace")
    return text.encode("utf-8", "replace")


def _shown_response(response: Any, text: str, request: WireRequest, secrets: Secrets) -> Any:
    """Return a copy of a response, without secrets, with ``text`` as its body."""
    encoding = response.headers.encoding
    as_sent = {"content-length", "content-encoding", "transfer-encoding"}  # of the original body
    headers = [
        # As bytes: httpx encodes text as ASCII, and a server may send other characters.
        (name.encode(encoding, "replace"), secrets.redact(value).encode(encoding, "replace"))
        for name, value in response.headers.multi_items()
        if name.lower() not in as_sent
    ]
    shown = type(response)(
        response.status_code,
        headers=headers,
        content=_encoded(text, response.encoding),
        request=_shown_request(response, printable_body(request), secrets),
        extensions={k: v for k, v in response.extensions.items() if k in ("http_version", "reason_phrase")},
    )
    with contextlib.suppress(RuntimeError):  # httpx: elapsed is not known before the body has been read
        shown.elapsed = response.elapsed
    return shown
