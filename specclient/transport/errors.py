"""Turn what HTTP libraries raise and servers answer into this package's errors, with every key taken out."""

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
from specclient.types.error_body import ErrorBody, parse_error_body
from specclient.types.wire import Secrets, WireRequest

_EXCERPT = 200
_POOL = ("pool", "No connection to {origin} became free")
_TIMEOUTS = {
    "ConnectTimeout": ("connect", "No connection to {origin} was made"),
    "ReadTimeout": ("read", "{origin} sent nothing"),
    "WriteTimeout": ("write", "{origin} took nothing of the request"),
    "PoolTimeout": _POOL,
    "ConnectionTimeoutError": _POOL,  # aiohttp's
}
#: What HTTP libraries raise before the whole request has gone out: httpx's and aiohttp's names, and Python's.
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


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL: what may be shown of it (the rest can hold a key)."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def transport_exceptions(library: str) -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean an HTTP attempt failed.

    Args:
        library: the client's package, ``httpx`` or ``httpx2``. A library that is not imported raises nothing.
    """
    exceptions: tuple[type[BaseException], ...] = (OSError,)
    if (module := sys.modules.get(library)) is not None:
        exceptions = (*exceptions, module.HTTPError, module.StreamError)
    aiohttp = sys.modules.get("aiohttp")  # does the I/O; httpx-aiohttp maps most of its errors
    return exceptions if aiohttp is None else (*exceptions, aiohttp.ClientError)


def connection_failure(
    error: BaseException, request: WireRequest, limits: Any, *, begun: bool
) -> APIConnectionError:
    """Return the error for a try that brought no answer, or whose answer broke off.

    To be raised outside the ``except`` block: what the HTTP library raised holds keys in places that cannot
    all be reached, so nothing may lead back to it; its type and text stand in the message.

    Args:
        error: as the HTTP library raised it.
        limits: the timeout object in force, with ``connect``, ``read``, ``write``, ``pool`` in seconds.
        begun: whether the answer's headers had come.
    """
    failure = _connection_failure(error, request, limits, begun=begun)
    failure.sent = begun or _was_sent(error)
    return failure


def _connection_failure(
    error: BaseException, request: WireRequest, limits: Any, *, begun: bool
) -> APIConnectionError:
    origin = origin_of(request.url)
    secrets = secrets_of(request, error)
    sent = _shown_request(error, printable_body(request), secrets)
    if _is_timeout(error):
        part, what = _TIMEOUTS.get(type(error).__name__, ("read", "{origin} sent nothing"))
        return APITimeoutError(
            sent,
            message=f"Request timed out. {what.format(origin=origin)} within the {part} timeout of "
            f"{getattr(limits, part, None)} s; pass a larger timeout= if it needs longer.",
        )
    cause = error.__cause__ or error
    text = _text_of(cause)
    reason = secrets.redact(f"{type(cause).__name__}: {text}" if text else type(cause).__name__)
    if begun:
        text = f"Connection error. The answer of {origin} broke off ({reason})."
    else:
        text = (
            f"Connection error. No answer from {origin} ({reason}). "
            "Check that the server is running and that base_url is right."
        )
    return APIConnectionError(message=text, request=sent)


def client_closed(request: WireRequest) -> APIConnectionError:
    """Return the error for a request that was running when its client was closed."""
    error = APIConnectionError(
        message="Connection error. The client was closed while the answer of "
        f"{origin_of(request.url)} was coming."
    )
    error.closed = True
    return error


def status_error_of(response: Any, content: bytes, request: WireRequest) -> APIStatusError:
    """Return the error for an answer with a status other than 2xx.

    Message, body and fields are those of the OpenAI client for the same bytes: of an answer only the field
    meant for people goes into the message, since the rest may quote the prompt. Where that client finds no
    such field, because the vendor has another name for it, this one looks on (:func:`parse_error_body`).

    Args:
        response: the HTTP library's; the error carries a copy without keys.
        content: its body, read whole.
    """
    secrets = secrets_of(request, response)
    text, body = _shown_body(content, secrets)
    fault = ErrorBody(None, None, None, None, body) if isinstance(body, str) else parse_error_body(body)
    status: int = response.status_code
    error = status_error(
        status,
        f"Error code: {status}" + (f" - {fault.message}" if fault.message else ""),
        response=_shown_response(response, text, request, secrets),
        body=body.get("error", body) if isinstance(body, Mapping) else body,
    )
    error.code, error.param, error.type = (
        error.code or fault.code,
        error.param or fault.param,
        error.type or fault.type,
    )
    return error


def not_a_stream(response: Any, content: bytes, request: WireRequest) -> APIResponseValidationError:
    """Return the error for a page of text where events were asked for."""
    secrets = secrets_of(request, response)
    text = secrets.redact(content.decode("utf-8", "replace"))
    kind = response.headers.get("content-type")
    return APIResponseValidationError(
        _shown_response(response, text, request, secrets),
        text[:_EXCERPT],
        message=f"{origin_of(request.url)} answered with {kind!r} where a stream of events was asked for; "
        f"check base_url. The answer begins: {text[:_EXCERPT]!r}",
    )


def secrets_of(request: WireRequest, carrier: Any) -> Secrets:
    """Return the secrets of a request: its own, and those which the user's client has added to it.

    Args:
        carrier: the library's exception or response, with the request as sent.
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
    """Return what an exception says; aiohttp's on bad HTTP name the whole URL beside it."""
    message = getattr(error, "message", None)
    return message if isinstance(message, str) else str(error)


def _is_timeout(error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        return True
    cause = error.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp."):
        return isinstance(cause, TimeoutError)  # httpx-aiohttp names a reset connection ConnectTimeout, too
    return any(cls.__name__ == "TimeoutException" for cls in type(error).__mro__)


def _was_sent(error: BaseException) -> bool:
    """Tell whether a try that brought no answer may have reached the server."""
    cause = error.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp."):
        error = cause  # httpx-aiohttp names a reset connection ConnectTimeout, too
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
    # Written anew: in JSON a secret may be escaped, which a search in the text would miss.
    return (text, body) if shown == body else (json.dumps(shown), shown)


def printable_body(request: WireRequest) -> bytes | None:
    """Return a body that can be shown without reading the user's file."""
    return request.content if isinstance(request.content, bytes) else None


def _shown_request(carrier: Any, content: bytes | None, secrets: Secrets) -> Any:
    """Return a copy, without secrets, of the request that a library's exception or response carries."""
    sent = _request_of(carrier)
    if sent is None:
        return None
    return type(sent)(
        sent.method,
        secrets.url(str(sent.url)),
        headers=[(name, secrets.header(name, value)) for name, value in sent.headers.multi_items()],
        content=content,
    )


def _shown_response(response: Any, text: str, request: WireRequest, secrets: Secrets) -> Any:
    """Return a copy of a response, without secrets, with ``text`` as its body."""
    unlike = {"content-length", "content-encoding", "transfer-encoding"}  # of the body as it was sent
    headers = [
        (name, secrets.redact(value))
        for name, value in response.headers.multi_items()
        if name.lower() not in unlike
    ]
    shown = type(response)(
        response.status_code,
        headers=headers,
        content=text.encode(response.encoding or "utf-8", "replace"),
        request=_shown_request(response, printable_body(request), secrets),
        extensions={k: v for k, v in response.extensions.items() if k in ("http_version", "reason_phrase")},
    )
    with contextlib.suppress(RuntimeError):  # known once the body has been read
        shown.elapsed = response.elapsed
    return shown
