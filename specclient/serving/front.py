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
from specclient.serving.access import admitted
from specclient.serving.dashboard.page import PAGE
from specclient.serving.keys_gate import Gate, check_route
from specclient.serving.keys_ring import KeyRing
from specclient.serving.limits import Limits
from specclient.serving.problems import ProblemError, bad, problem_of, stopping, traced
from specclient.serving.requests_log import RequestLog
from specclient.serving.talk import ClientGoneError, Receive, Scope, Send, Talk
from specclient.serving.tracing import served

_log = logging.getLogger("specclient")

ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Where a request's scope has its :class:`~specclient.serving.talk.Talk`.
TALK = "specclient.talk"
#: What is served to everybody: whether the server lives, and the dashboard without a figure in it.
OPEN = frozenset({"/health", *PAGE})
#: Where what is served is for every key; what is elsewhere tells of the calls of all of them.
_OF_ALL = ("/v1/", "/ready")


class Front:
    """The outermost part of the application; see :func:`specclient.serving.create_app` for its keys.

    Args:
        handlers: what serves most requests, by method and path; ``app`` serves all others.
    """

    def __init__(
        self,
        app: ASGI,
        *,
        handlers: Mapping[tuple[str, str], ASGI],
        key: SecretStr | None,
        ring: KeyRing | None,
        gate: Gate,
        limits: Limits,
        log: RequestLog,
    ) -> None:
        self._app, self._limits, self._log = app, limits, log
        self._handlers = handlers
        self._key, self._ring, self._gate = key, ring, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = f"req_{os.urandom(12).hex()}"
        with self._log.entry(number, scope["method"]) as entry, served(scope, entry):
            talk = Talk(scope, receive, send, entry, limits=self._limits, limited=self._gate.limited)
            scope[TALK] = talk
            try:
                problem = await self._served(scope, receive, send, talk, number)
                if problem is not None:
                    entry.code = problem.code
                    if not talk.begun:
                        await talk.say(problem.body(), status=problem.status, headers=problem.headers)
            except ClientGoneError:
                _log.debug("%s: the client left", number)
            finally:
                del scope[TALK]  # a circle, and one for each request keeps the garbage collector busy

    async def _served(
        self, scope: Scope, receive: Receive, send: Send, talk: Talk, number: str
    ) -> ProblemError | None:
        """Have a request served, and return what went wrong."""
        try:
            if len(talk.headers) < len(scope["headers"]):  # of some name there are several
                _check_host(scope)
            if scope["path"] not in OPEN:
                talk.key = await admitted(talk.headers, self._key, self._ring)
                talk.entry.key = talk.key.name if talk.key is not None else None
                if not scope["path"].startswith(_OF_ALL):
                    check_route(talk.key, scope["path"])
            serve = self._handlers.get((scope["method"], scope["path"]), self._app)
            await serve(scope, receive, send)
        except ClientGoneError:
            raise
        except asyncio.CancelledError:  # the server stops, and this took longer than it waits
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return stopping()
        except HTTPException as error:
            return _of_route(scope, error)
        except Exception as error:  # noqa: BLE001 - the rim: every request is answered
            problem = problem_of(error)
            if problem.status == 500 and not isinstance(error, APIStatusError):  # which may quote a prompt
                _log.error("%s failed: %s", number, traced(error))
                _log.debug("%s: what it said", number, exc_info=error)
            return problem
        return None


def _check_host(scope: Scope) -> None:
    """Refuse a request that names several hosts: which of them is meant, others may see otherwise than we."""
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        problem = bad(None, "the request has several host headers", "invalid_http")
        raise replace(problem, headers={"connection": "close"})


def _of_route(scope: Scope, error: HTTPException) -> ProblemError:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        return ProblemError(
            405, f"{scope['method']} is not allowed on {scope['path']}; {allowed} is", headers=headers
        )
    return ProblemError(
        error.status_code,
        f"there is no route {scope['method']} {scope['path'][:200]} on this server",
        headers=headers,
    )
