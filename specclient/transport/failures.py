"""Turn what HTTP libraries raise and servers answer into this package's errors, with every key taken out."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from specclient.errors import (
    APIConnectionError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    status_error,
)
from specclient.types.fault import read_fault
from specclient.types.wire import WireRequest

SECRET_HEADERS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"}
)
_REDACTED = "[redacted]"
_EXCERPT = 200
_TIMEOUTS = {
    "ConnectTimeout": ("connect", "no connection to {origin} was made"),
    "ReadTimeout": ("read", "{origin} sent nothing"),
    "WriteTimeout": ("write", "{origin} took nothing of the request"),
    "PoolTimeout": ("pool", "no connection to {origin} became free"),
}


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL: what may be shown of it (the rest can hold a key)."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def caught(vendor: ModuleType) -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean "this try failed" for a client of ``vendor`` (httpx or httpx2)."""
    found: tuple[type[BaseException], ...] = (
        vendor.HTTPError,
        vendor.InvalidURL,
        vendor.StreamError,
        OSError,
    )
    aiohttp = sys.modules.get(
        "aiohttp"
    )  # loaded only where it does the I/O; httpx-aiohttp maps most of its errors
    return found if aiohttp is None else (*found, aiohttp.ClientError)


def connection_failure(
    error: BaseException, request: WireRequest, limits: Any, *, begun: bool
) -> APIConnectionError:
    """Return the error for a try that brought no answer, or whose answer broke off.

    Args:
        error: as the HTTP library raised it; its request is stripped of keys.
        limits: the timeout object in force, with ``connect``, ``read``, ``write``, ``pool`` in seconds.
        begun: whether the answer's headers had come.
    """
    origin = origin_of(request.url)
    sent = _strip_request(error)
    if _is_timeout(error):
        part, what = _TIMEOUTS.get(type(error).__name__, ("read", "{origin} sent nothing"))
        return APITimeoutError(
            sent,
            message=f"Request timed out: {what.format(origin=origin)} within the {part} timeout of "
            f"{getattr(limits, part, None)} s; pass a larger timeout= if it needs longer.",
        )
    cause = error.__cause__ or error
    reason = redact(f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__, request)
    if begun:
        text = f"Connection error: the answer of {origin} broke off ({reason})."
    else:
        text = (
            f"Connection error: no answer from {origin} ({reason}). "
            "Check that the server is running and that base_url is right."
        )
    return APIConnectionError(message=text, request=sent)


def refusal(response: Any, content: bytes, request: WireRequest) -> APIStatusError:
    """Return the error for an answer with a status of 400 or more.

    Args:
        response: the HTTP library's; its request is stripped of keys.
        content: its body, read whole.
    """
    _strip_request(response)
    text = redact(content.decode("utf-8", "replace"), request)
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    fault = read_fault(body)
    status: int = response.status_code
    error = status_error(
        status,
        f"Error code: {status} - {body}" if body else f"Error code: {status}",
        response=response,
        body=fault.body,
    )
    error.code, error.param, error.type = fault.code, fault.param, fault.type
    return error


def not_a_stream(response: Any, content: bytes, request: WireRequest) -> APIResponseValidationError:
    """Return the error for a page of text where events were asked for."""
    _strip_request(response)
    text = redact(content.decode("utf-8", "replace"), request)[:_EXCERPT]
    kind = response.headers.get("content-type")
    return APIResponseValidationError(
        response,
        text,
        message=f"{origin_of(request.url)} answered with {kind!r} where a stream of events was asked for; "
        f"check base_url. The answer begins: {text!r}",
    )


def redact(text: str, request: WireRequest) -> str:
    """Return ``text`` without any secret that ``request`` carries in its headers."""
    for name, value in request.headers.items():
        if name.lower() in SECRET_HEADERS:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    text = text.replace(secret, _REDACTED)
    return text


def _is_timeout(error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        return True
    cause = error.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp."):
        return isinstance(cause, TimeoutError)  # httpx-aiohttp names a reset connection ConnectTimeout, too
    return any(cls.__name__ == "TimeoutException" for cls in type(error).__mro__)


def _strip_request(carrier: Any) -> Any:
    """Take the keys out of the request that a library's exception or response carries; return it."""
    for earlier in getattr(carrier, "history", ()):  # redirects
        _strip_request(earlier)
    try:
        sent = carrier.request
    except (AttributeError, RuntimeError):  # RuntimeError: httpx, where none was set
        return None
    for name in SECRET_HEADERS & {name.lower() for name in sent.headers}:
        sent.headers[name] = _REDACTED
    return sent
