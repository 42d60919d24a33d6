"""WebSockets by the ``websockets`` library, with the errors of this package."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidProxyStatus,
    InvalidStatus,
    InvalidURI,
    SecurityError,
    WebSocketException,
)
from websockets.uri import parse_uri

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    ResponseTooLargeError,
)
from specclient.http_transport.errors import origin_of, secrets_of, status_error_of
from specclient.types.limit import ResponseLimits
from specclient.types.wire import WireRequest

__all__ = ["ClientConnection", "WebSocketEndedError", "WebSocketFailedError", "close_code", "open_websocket"]

#: The code of a connection that ended without a close frame, and that of a message that is too long
#: (RFC 6455, section 7.4.1).
ABNORMAL, TOO_BIG = 1006, 1009


class _ClosedError(APIConnectionError):
    """The part that the errors of closed connections share.

    Attributes:
        rcvd: the close frame of the server, with ``code`` and ``reason``; None if there was none.
        rcvd_then_sent: whether the server closed first; None unless both sides did.
    """

    def __init__(self, error: ConnectionClosed, message: str) -> None:
        # The initializers of the base classes call each other with different arguments, so they are not used.
        self.rcvd, self.rcvd_then_sent = error.rcvd, error.rcvd_then_sent
        self.args = (message,)
        self.message = message
        self.request = self.body = self.partial = None

    def __str__(self) -> str:
        return self.message


class WebSocketEndedError(_ClosedError, ConnectionClosedOK):  # type: ignore[misc] # `sent` is APIConnectionError's
    """A WebSocket was closed with code 1000 or 1001; also the ``websockets`` library's error for it."""


class WebSocketFailedError(_ClosedError, ConnectionClosedError):  # type: ignore[misc]
    """A WebSocket broke off or was closed with an error; also the ``websockets`` library's error for it."""


class _SameOriginConnect(connect):
    """Connects, and follows redirects to the same origin only, because the handshake carries the key."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        target = super().process_redirect(exc)
        if isinstance(target, str):
            old, new = parse_uri(self.uri), parse_uri(target)
            if (old.secure, old.host, old.port) != (new.secure, new.host, new.port):
                return SecurityError("the server redirects to another origin")
        return target


async def open_websocket(
    wire: WireRequest, options: Mapping[str, Any], limits: ResponseLimits
) -> ClientConnection:
    """Open a WebSocket.

    Args:
        wire: the handshake. A URL with ``http`` or ``https`` is opened as ``ws`` or ``wss``.
        options: keyword arguments of ``websockets.connect`` that replace the defaults.
        limits: ``max_event_bytes`` is the default limit of a message. Compression is off by default.

    Raises:
        APIStatusError: the server, or a proxy, refused the handshake; the class is that of its status.
        APITimeoutError: there was no answer in time (``open_timeout``, 10 s by default).
        APIConnectionError: there was no connection, or the answer was not a handshake.
        TypeError: an option does not exist.
    """
    if wire.authorize is not None:
        wire = await wire.authorize(wire)
    size = limits.max_event_bytes
    defaults = {"compression": None, "max_size": None if math.isinf(size) else int(size)}
    if options.get("max_size") is not None:
        del defaults["compression"]  # as in the OpenAI client
    try:
        return await _SameOriginConnect(
            websocket_url(wire.url),
            user_agent_header=None,
            additional_headers=dict(wire.headers),
            **{**defaults, **options},
        )
    except (InvalidStatus, InvalidProxyStatus) as error:
        if error.response.status_code < 400:  # a page, or a redirect without a target
            raise _opening_failure(error, wire) from error
        raise _refusal(error, wire) from error
    except (OSError, WebSocketException) as error:
        raise _opening_failure(error, wire) from (None if isinstance(error, InvalidURI) else error)


def websocket_url(url: str) -> str:
    """Return a URL with ``ws`` in place of ``http``, and ``wss`` in place of ``https``."""
    return f"ws{url[4:]}" if url.startswith("http") else url


def http_url(url: str) -> str:
    """Return a URL with ``http`` in place of ``ws``, and ``https`` in place of ``wss``."""
    return f"http{url[2:]}" if url.startswith("ws") else url


def close_code(error: ConnectionClosed) -> int:
    """Return the code with which the server closed a connection; 1006 without one."""
    return ABNORMAL if error.rcvd is None else error.rcvd.code


def closed_error(error: ConnectionClosed) -> APIError:
    """Return this package's error for a closed connection.

    Returns:
        A :class:`WebSocketEndedError` or :class:`WebSocketFailedError`; or a :class:`ResponseTooLargeError`
        if the connection was closed here because a message was too long.
    """
    if error.sent is not None and error.sent.code == TOO_BIG and not error.rcvd_then_sent:
        return ResponseTooLargeError(
            f"the server sent a message over WebSocket that is longer than the limit ({error.sent.reason}); "
            "raise max_size in websocket_connection_options, or max_event_bytes of response_limits",
            setting="max_event_bytes",
            limit=math.nan,
            read=0,
        )
    kind = WebSocketEndedError if isinstance(error, ConnectionClosedOK) else WebSocketFailedError
    received = error.rcvd
    if received is None:
        what = (
            "broke off" if error.sent is None else f"was closed here ({error.sent.code} {error.sent.reason})"
        )
    else:
        reason = f": {received.reason[:200]!r}" if received.reason else ""
        what = f"was closed by the server with code {received.code}{reason}"
    return kind(error, f"Connection error. The WebSocket {what}.")


def _refusal(error: InvalidStatus | InvalidProxyStatus, wire: WireRequest) -> APIStatusError:
    """Return the error for a handshake that was answered with an HTTP response."""
    import httpx  # noqa: PLC0415 - few handshakes are refused

    answer = error.response
    headers = [(name, value) for name, value in answer.headers.raw_items()]
    request = httpx.Request("GET", http_url(wire.url), headers=wire.headers)
    body = bytes(answer.body or b"")
    response = httpx.Response(answer.status_code, headers=headers, content=body, request=request)
    found = status_error_of(response, body, wire)
    if isinstance(error, InvalidProxyStatus):
        found.message = f"{found.message} (from the proxy on the way to {origin_of(wire.url)})"
        found.args = (found.message,)
    return found


def _opening_failure(error: Exception, wire: WireRequest) -> APIConnectionError:
    origin = origin_of(http_url(wire.url))
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        failure: APIConnectionError = APITimeoutError(
            message=f"Request timed out. {origin} did not answer the WebSocket handshake in time; pass a "
            "larger open_timeout in websocket_connection_options if it needs longer."
        )
    else:
        text = secrets_of(wire, error).redact(str(error) or type(error).__name__)
        what = "is no WebSocket handshake" if isinstance(error, InvalidHandshake) else "failed"
        failure = APIConnectionError(
            message=f"Connection error. The WebSocket connection to {origin} {what} "
            f"({type(error).__name__}: {text[:300]}). Check that the server offers WebSockets at this URL."
        )
    failure.sent = False
    return failure
