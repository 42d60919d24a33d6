"""Turn every request into one answer: let in who may, give it an id, make an error of what goes wrong."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from pydantic import SecretStr
from starlette.exceptions import HTTPException

from specclient.errors import APIStatusError
from specclient.serving.dashboard.page import PAGE
from specclient.serving.errors import (
    ServingError,
    bad_request,
    exception_summary,
    serving_error_of,
    shutting_down,
)
from specclient.serving.exchange import (
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
from specclient.serving.tracing import request_span

_log = logging.getLogger("specclient")

ASGIApp = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]

#: Where a request's scope has its :class:`~specclient.serving.exchange.HTTPExchange`.
EXCHANGE_KEY = "specclient.talk"
#: What is served to everybody: whether the server lives, and the dashboard without a figure in it.
PUBLIC_PATHS = frozenset({"/health", *PAGE})
#: Where what is served is for every key; what is elsewhere tells of the calls of all of them.
_OF_ALL = ("/v1/", "/ready")


class RequestMiddleware:
    """The outermost part of the application; see :func:`specclient.serving.create_app` for its keys.

    Args:
        handlers: what serves most requests, by method and path; ``app`` serves all others.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        handlers: Mapping[tuple[str, str], ASGIApp],
        key: SecretStr | None,
        ring: KeyCache | None,
        gate: KeyLimiter,
        limits: Limits,
        log: RequestLog,
    ) -> None:
        self._app, self._limits, self._log = app, limits, log
        self._handlers = handlers
        self._key, self._ring, self._gate = key, ring, gate

    async def __call__(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = f"req_{os.urandom(12).hex()}"
        with self._log.entry(number, scope["method"]) as entry, request_span(scope, entry):
            talk = HTTPExchange(scope, receive, send, entry, limits=self._limits, limited=self._gate.limited)
            scope[EXCHANGE_KEY] = talk
            try:
                problem = await self._served(scope, receive, send, talk, number)
                if problem is not None:
                    entry.code = problem.code
                    if not talk.begun:
                        await talk.say(problem.body(), status=problem.status, headers=problem.headers)
            except ClientDisconnectedError:
                _log.debug("%s: the client left", number)
            finally:
                del scope[EXCHANGE_KEY]  # a circle, and one for each request keeps the garbage collector busy

    async def _served(
        self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend, talk: HTTPExchange, number: str
    ) -> ServingError | None:
        """Have a request served, and return what went wrong."""
        try:
            if len(talk.headers) < len(scope["headers"]):  # of some name there are several
                _check_host(scope)
            if scope["path"] not in PUBLIC_PATHS:
                talk.key = await authenticate(talk.headers, self._key, self._ring)
                talk.entry.key = talk.key.name if talk.key is not None else None
                if not scope["path"].startswith(_OF_ALL):
                    check_route(talk.key, scope["path"])
            serve = self._handlers.get((scope["method"], scope["path"]), self._app)
            await serve(scope, receive, send)
        except ClientDisconnectedError:
            raise
        except asyncio.CancelledError:  # the server stops, and this took longer than it waits
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return shutting_down()
        except HTTPException as error:
            return _of_route(scope, error)
        except Exception as error:  # noqa: BLE001 - the rim: every request is answered
            problem = serving_error_of(error)
            if problem.status == 500 and not isinstance(error, APIStatusError):  # which may quote a prompt
                _log.error("%s failed: %s", number, exception_summary(error))
                _log.debug("%s: what it said", number, exc_info=error)
            return problem
        return None


def _check_host(scope: ASGIScope) -> None:
    """Refuse a request that names several hosts: which of them is meant, others may see otherwise than we."""
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        problem = bad_request(None, "the request has several host headers", "invalid_http")
        raise replace(problem, headers={"connection": "close"})


def _of_route(scope: ASGIScope, error: HTTPException) -> ServingError:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        return ServingError(
            405, f"{scope['method']} is not allowed on {scope['path']}; {allowed} is", headers=headers
        )
    return ServingError(
        error.status_code,
        f"there is no route {scope['method']} {scope['path'][:200]} on this server",
        headers=headers,
    )
