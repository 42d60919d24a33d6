"""The middleware around the application: request ids, authentication, and error responses."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from pydantic import SecretStr
from starlette.exceptions import HTTPException

from specclient.errors import APIStatusError, LedgerError
from specclient.openai_http.errors import (
    ServingError,
    bad_request,
    exception_summary,
    serving_error_of,
    shutting_down,
)
from specclient.serving.api_forms import OLLAMA_PREFIX
from specclient.serving.body_memory import BodyMemory
from specclient.serving.dashboard.page import PAGE
from specclient.serving.exchange import (
    EXCHANGE_KEY,
    ASGIReceive,
    ASGIScope,
    ASGISend,
    ClientDisconnectedError,
    HTTPExchange,
)
from specclient.serving.keys.authentication import authenticate
from specclient.serving.keys.cache import KeyCache
from specclient.serving.keys.limiter import KeyLimiter, check_route
from specclient.serving.limits import Limits
from specclient.serving.request_log import RequestLog
from specclient.serving.sockets.handler import KEY_SUBPROTOCOL, SOCKET_PATHS
from specclient.serving.sockets.messages import as_refusal
from specclient.serving.tracing import request_span
from specclient.serving.whole_messages import WHOLE_KEY

_log = logging.getLogger("specclient")

#: Seconds between two warnings that the ledger cannot be written.
_WARNING_S = 60.0

ASGIApp = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]

#: The method in log entries and spans of a WebSocket handshake; the blank excludes an HTTP method.
_UPGRADE = "GET websocket"
#: Paths that need no key: the health check, and the dashboard's files, which contain no figures.
PUBLIC_PATHS = frozenset({"/health", *PAGE})
#: Path prefixes open to every key. Other paths show the calls of all keys.
_FOR_ALL_KEYS = ("/v1/", "/v1beta/", OLLAMA_PREFIX, "/ready")


class RequestMiddleware:
    """The outermost ASGI middleware; see :func:`specclient.serving.create_app` for the keys.

    Args:
        app: the ASGI application.
        handlers: ASGI applications by method and path, which bypass the router of ``app``.
        sockets: ASGI applications of WebSockets by path.
        key: the operator's key.
        keys: the stored keys.
        key_limiter: supplies the rate-limit headers.
        limits: limits of the server.
        log: records the requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        handlers: Mapping[tuple[str, str], ASGIApp],
        sockets: Mapping[str, ASGIApp],
        key: SecretStr | None,
        keys: KeyCache | None,
        key_limiter: KeyLimiter,
        limits: Limits,
        log: RequestLog,
    ) -> None:
        self._app, self._limits, self._log = app, limits, log
        self._bodies = BodyMemory(limits.bodies_bytes)
        self._warned_at: float | None = None
        self._handlers, self._sockets = handlers, sockets
        self._key, self._keys, self._key_limiter = key, keys, key_limiter

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] == "websocket":
            scope["method"], send = _UPGRADE, as_refusal(send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{os.urandom(12).hex()}"
        with (
            self._log.entry(request_id, scope["method"].partition(" ")[0]) as entry,
            request_span(scope, entry),
        ):
            exchange = HTTPExchange(
                scope,
                receive,
                send,
                entry,
                limits=self._limits,
                limit_headers=self._key_limiter.limit_headers,
                bodies=self._bodies,
            )
            scope[EXCHANGE_KEY] = exchange
            try:
                error_response = await self._serve(scope, receive, send, exchange, request_id)
                if error_response is not None:
                    entry.code = error_response.code
                    if not exchange.started:
                        await exchange.respond(
                            exchange.form.error_body(error_response, request_id),
                            status=error_response.status,
                            headers=error_response.headers,
                        )
            except ClientDisconnectedError:
                _log.debug("%s: the client disconnected", request_id)
            finally:
                exchange.release_body()
                # Both are in reference cycles, which would burden the garbage collector.
                del scope[EXCHANGE_KEY]
                scope.pop(WHOLE_KEY, None)

    def _warn_unwritable(self, error: LedgerError) -> None:
        """Log why calls are refused, once in a while; the response does not name the database."""
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at > _WARNING_S:
            self._warned_at = now
            _log.warning("%s", error)

    async def _serve(
        self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend, exchange: HTTPExchange, request_id: str
    ) -> ServingError | None:
        """Serve a request; return the error, if any."""
        try:
            if len(exchange.headers) < len(scope["headers"]):  # some header is repeated
                _check_host(scope)
            if scope["method"] == _UPGRADE:
                _check_socket(scope, exchange.headers)
            if scope["path"] not in PUBLIC_PATHS:
                exchange.key = await authenticate(exchange.headers, self._key, self._keys)
                exchange.entry.key = exchange.key.name if exchange.key is not None else None
                if not scope["path"].startswith(_FOR_ALL_KEYS):
                    check_route(exchange.key, scope["path"])
            if scope["method"] == _UPGRADE:
                serve = self._sockets[scope["path"]]
            else:
                serve = self._handlers.get((scope["method"], scope["path"]), self._app)
            await serve(scope, receive, send)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return shutting_down()
        except HTTPException as error:
            return _routing_error(scope, error)
        except Exception as error:  # noqa: BLE001 - every request gets a response
            error_response = serving_error_of(error)
            if isinstance(error, LedgerError):
                self._warn_unwritable(error)
            # The text of an APIStatusError may contain a prompt, so it is not logged.
            if error_response.status == 500 and not isinstance(error, APIStatusError):
                _log.error("%s failed: %s", request_id, exception_summary(error))
                _log.debug("%s: traceback", request_id, exc_info=error)
            return error_response
        return None


def _check_socket(scope: ASGIScope, headers: dict[str, str]) -> None:
    """Refuse a handshake on a path without WebSockets, and read a browser's key from its subprotocol."""
    if scope["path"] not in SOCKET_PATHS:
        raise ServingError(404, f"there are no WebSockets at {scope['path'][:200]} on this server")
    offered = next((name for name in scope["subprotocols"] if name.startswith(KEY_SUBPROTOCOL)), None)
    if offered is not None:
        headers.setdefault("authorization", f"Bearer {offered.removeprefix(KEY_SUBPROTOCOL)}")


def _check_host(scope: ASGIScope) -> None:
    """Refuse a request with several host headers, which proxies and servers may interpret differently."""
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        error_response = bad_request(None, "the request has several host headers", "invalid_http")
        raise replace(error_response, headers={"connection": "close"})


def _routing_error(scope: ASGIScope, error: HTTPException) -> ServingError:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        return ServingError(
            405, f"{scope['method']} is not allowed on {scope['path']}; allowed: {allowed}", headers=headers
        )
    return ServingError(
        error.status_code,
        f"there is no route {scope['method']} {scope['path'][:200]} on this server",
        headers=headers,
    )
