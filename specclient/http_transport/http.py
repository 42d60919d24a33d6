"""The transport: sends HTTP requests with retries, pacing and a circuit breaker."""

from __future__ import annotations

import asyncio
import copy
import logging
import random as _random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AuthenticationError,
    CircuitOpenError,
    ConfigurationError,
)
from specclient.http_transport import errors
from specclient.http_transport.attempt import RETRY_HEADER, HTTPAttempt
from specclient.http_transport.body_limits import DEFAULT_RESPONSE_LIMITS
from specclient.http_transport.cancellation import RequestCancelScope
from specclient.http_transport.circuit_breaker import BreakerPermit, CircuitBreaker
from specclient.http_transport.clients.adapters import MAX_CONNECTIONS, ClientAdapter, adapter_of
from specclient.http_transport.clients.per_loop import ClientKind, LoopClients
from specclient.http_transport.clients.timeouts import DEFAULT_TIMEOUT_SECONDS, own_timeout, seconds_of
from specclient.http_transport.pacing.pacer import Pacer
from specclient.http_transport.response import ResponseBody, ResponseContext, SSEStream, as_body, as_events
from specclient.http_transport.retry import DEFAULT_MAX_RETRIES, retrying
from specclient.http_transport.uploads import body_of, can_send_again
from specclient.types.limit import CircuitRule, DeploymentLimit, ResponseLimits
from specclient.types.wire import FailedAttempt, WireRequest, WireResponse

__all__ = ["ResponseBody", "SSEStream", "Transport"]

_log = logging.getLogger("specclient")
_CIRCUIT = CircuitRule()


class Transport:
    """Sends requests, with retries and pacing; may be used from several event loops and threads.

    Args:
        http_client: the user's ``httpx.AsyncClient`` or ``httpx.Client`` (or httpx2's). It is used as it is,
            and never closed here. None uses the package's own client.
        timeout: seconds, ``math.inf`` for no limit, or an ``httpx.Timeout``. None uses the timeout of the
            user's client if one was set on it, otherwise 600 s with 5 s to connect.
        max_retries: attempts after the first, for requests that set no number of their own.
        kind: the library that does the I/O of the package's own client: ``aiohttp`` (half the CPU) or
            ``httpx``.
        connections: the maximum number of open connections of the package's own client, per event loop.
        limits: rate limits of deployments by ``provider/model``, in addition to those their headers report.
        pacing: whether requests wait for the limits that responses report; set ``limits`` hold anyway.
        response_limits: limits on the size of responses; None for the defaults.
        circuit: when the circuit of a failing deployment opens; None for never.
        clock: returns monotonic seconds.
        now: returns seconds since the epoch.
        sleep: waits for seconds.
        random: returns a number from [0, 1).

    Attributes:
        usage_refused: base URLs of endpoints that have refused a stream with a request for usage.

    Raises:
        ConfigurationError: an argument is invalid.
    """

    def __init__(
        self,
        *,
        http_client: Any = None,
        timeout: Any = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        kind: ClientKind = "aiohttp",
        connections: int = MAX_CONNECTIONS,
        limits: Mapping[str, DeploymentLimit] | None = None,
        pacing: bool = True,
        response_limits: ResponseLimits | None = None,
        circuit: CircuitRule | None = _CIRCUIT,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.usage_refused: set[str] = set()
        self._set_defaults(http_client, timeout, max_retries)
        self.response_limits = response_limits or DEFAULT_RESPONSE_LIMITS
        self._own = LoopClients(kind, connections)
        self._clock, self._now, self._sleep, self._random = clock, now, sleep, random
        self._running: set[RequestCancelScope] = set()
        self._pacer = Pacer(clock=clock, now=now, sleep=sleep, random=random, limits=limits, learns=pacing)
        self._breaker = CircuitBreaker(circuit, clock=clock)

    def sharing(
        self,
        *,
        http_client: Any,
        timeout: Any,
        max_retries: int,
        response_limits: ResponseLimits | None = None,
    ) -> Transport:
        """Return a transport with other defaults that shares connections and the state of rate limits.

        Args:
            http_client, timeout, max_retries: see the class.
            response_limits: see the class; None for those of this transport.
        """
        other = copy.copy(self)
        other.response_limits = response_limits or self.response_limits
        other._set_defaults(http_client, timeout, max_retries)
        return other

    def _set_defaults(self, http_client: Any, timeout: Any, max_retries: int) -> None:
        self._max_retries = _checked_retries(max_retries)
        self._adapter = None if http_client is None else adapter_of(http_client)
        if timeout is None:
            own = None if http_client is None else own_timeout(http_client)
            timeout = DEFAULT_TIMEOUT_SECONDS if own is None else own
        self._limits = seconds_of(timeout)

    def prepare(self) -> None:
        """Import the HTTP library. Takes about 0.2 s, so call it outside the event loop."""
        if self._adapter is None:
            self._own.prepare()

    async def fetch(self, request: WireRequest) -> WireResponse:
        """Send ``request`` and return its whole response.

        Raises:
            APIStatusError: the status is not 2xx, and no retries are left.
            APIConnectionError, APITimeoutError: no complete response was received.
            ResponseTooLargeError: the response exceeds one of ``response_limits``.
            DeadlineExceededError: ``deadline_s`` passed first.
            CircuitOpenError: the deployment has been failing, and its circuit is open.
            ConfigurationError: the timeout, deadline or number of retries is invalid.
        """
        scope = self._new_scope(request)
        self._running.add(scope)
        try:
            done = await scope.wait(partial(self._send, request, scope, stream=False))
        finally:
            self._running.discard(scope)
        done.leave()
        response = done.response
        return WireResponse(
            response.status_code, done.headers, response.content, done.attempts, done.secrets, done.library
        )

    def open(self, request: WireRequest) -> AbstractAsyncContextManager[ResponseBody]:
        """Return a context manager that sends ``request`` and yields the response with its body unread.

        Leaving the context frees the connection. Failures are retried until the response's headers arrive;
        later errors are raised. Raises on entry as :meth:`fetch`.
        """
        return ResponseContext(self._send, request, self._new_scope, self._running, as_body)

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[SSEStream]:
        """Return a context manager that sends ``request`` and yields its server-sent events.

        Leaving the context frees the connection. Failures are retried until the response's headers arrive;
        later errors are raised.

        Raises (on entry as :meth:`fetch`, and while iterating):
            APIResponseValidationError: the response is an HTML page.
            APIConnectionError, APITimeoutError: the stream was interrupted, or no data arrived in time.
            ResponseTooLargeError: the stream, or an event, exceeds one of ``response_limits``.
        """
        return ResponseContext(self._send, request, self._new_scope, self._running, as_events)

    async def aclose(self) -> None:
        """Cancel the requests of the running event loop, then close the package's own client of that loop.

        Their callers get an APIConnectionError. A user's client stays open. Safe to call twice.
        """
        loop = asyncio.get_running_loop()
        for scope in list(self._running):
            if scope.loop is loop:
                scope.end()
        await self._own.aclose()

    def used(self, request: WireRequest, tokens: int) -> None:
        """Record the tokens, prompt and completion, that a request has used. Pacing depends on them."""
        self._pacer.used(_deployment(request), request.tokens, tokens)

    def _new_scope(self, request: WireRequest) -> RequestCancelScope:
        return RequestCancelScope(request, self._clock)

    async def _send(self, request: WireRequest, scope: RequestCancelScope, *, stream: bool) -> HTTPAttempt:
        if request.content is not None and not isinstance(request.content, bytes):
            request = replace(request, content=body_of(request.content))
        adapter: ClientAdapter = self._adapter or await self._own.adapter()
        limits = self._limits if request.timeout is None else seconds_of(request.timeout)
        retries = self._max_retries if request.max_retries is None else _checked_retries(request.max_retries)
        retries = retries if request.retryable else 0
        unreported: list[FailedAttempt] = []  # the last failed attempt, until a retry is certain

        async def next_attempt() -> HTTPAttempt:
            scope.attempts += 1
            attempt = HTTPAttempt(adapter, request, limits, scope.attempts, self.response_limits)
            started_at = self._clock()
            try:
                return await self._try_authorized(attempt, scope, stream=stream)
            except APIError as error:
                if isinstance(error, CircuitOpenError) and scope.failure is not None:
                    if isinstance(scope.failure, APIConnectionError):
                        scope.failure.sent = False
                    raise scope.failure from scope.failure.__cause__  # more informative than an open circuit
                scope.failure = error
                unreported[:] = [
                    _failed_attempt(error, self._clock() - started_at, waited=attempt.permit is None)
                ]
                raise

        try:
            return await next_attempt()
        except APIError as error:
            if not retries:
                raise
            failed = [error]

        async def replay() -> HTTPAttempt:
            # The first attempt ran outside the retry loop, because creating that costs 5 % of a request.
            if failed:
                raise failed.pop()
            return await next_attempt()

        def before_wait(seconds: float, error: BaseException | None) -> bool:
            scope.check_wait(seconds)
            if self._breaker.is_open(_deployment(request), seconds) or not can_send_again(request):
                return False
            _log.info("retry %d of %d in %.3f s: %s", scope.attempts, retries, seconds, type(error).__name__)
            if request.on_failed_attempt is not None and unreported:
                request.on_failed_attempt(unreported.pop())
            return True

        loop = retrying(
            retries, sleep=self._sleep, random=self._random, now=self._now, before_wait=before_wait
        )
        return await loop(replay)

    async def _try_authorized(
        self, attempt: HTTPAttempt, scope: RequestCancelScope, *, stream: bool
    ) -> HTTPAttempt:
        """Make one attempt, and another one with a new token if its token is refused and can be replaced."""
        request = attempt.request
        try:
            return await self._try(attempt, scope, stream=stream)
        except AuthenticationError:
            refused = attempt.response is not None and attempt.response.status_code == 401
            if not (refused and attempt.request.drop_token() and can_send_again(request)):
                raise
        again = HTTPAttempt(attempt.adapter, request, attempt.limits, attempt.attempts, self.response_limits)
        return await self._try(again, scope, stream=stream)

    async def _try(self, attempt: HTTPAttempt, scope: RequestCancelScope, *, stream: bool) -> HTTPAttempt:
        """Make one attempt when circuit breaker and pacer permit it, and report its outcome to both."""
        deployment = _deployment(attempt.request)
        self._breaker.check(deployment)  # here and after the wait for a permit
        permit = attempt.permit = await self._pacer.enter(deployment, attempt.request.tokens, scope)
        try:
            breaker_permit = self._breaker.enter(deployment)
            failure: BaseException | None = None
            try:
                await self._send_once(attempt, breaker_permit, stream=stream)
            except BaseException as error:
                failure = error
                raise
            finally:
                others = attempt.request.others_serve
                others_serve = failure is not None and others is not None and others()
                self._breaker.leave(breaker_permit, failure, others_serve=others_serve)
        except BaseException as error:
            permit.leave()
            if isinstance(error, APIError):
                self._pacer.refused(deployment, permit, error, attempt.headers)
            raise
        self._pacer.served(deployment, permit, attempt.headers)
        return attempt

    async def _send_once(self, attempt: HTTPAttempt, permit: BreakerPermit, *, stream: bool) -> None:
        request, number = attempt.request, attempt.attempts
        if request.authorize is not None:
            request = attempt.request = await request.authorize(request)
        debug = _log.isEnabledFor(logging.DEBUG)
        started_at = self._clock() if debug else 0.0
        failure = None
        try:
            headers = _with_retry_count(request, number)
            await attempt.open(headers)
        except attempt.failed as error:
            failure = attempt.broken(error, begun=False)
        if failure is not None:
            if debug:
                _log.debug("attempt %d: %s failed: %s", number, request.method, failure)
            raise failure
        status = attempt.response.status_code
        if debug:
            origin, took = errors.origin_of(request.url), self._clock() - started_at
            _log.debug("attempt %d: %s %s: %d, %.3f s", number, request.method, origin, status, took)
        # At the headers, before the body has been read: it may take long.
        self._breaker.answered(permit, status)
        if not 200 <= status < 300:
            content = await attempt.read_error()
            raise errors.status_error_of(attempt.library(), content, request)
        if not stream:
            await attempt.read()


def _failed_attempt(error: APIError, seconds: float, *, waited: bool) -> FailedAttempt:
    """Return the record of a failed attempt.

    Args:
        waited: whether it failed while it waited for its permit, so that nothing was sent.
    """
    status = error.status_code if isinstance(error, APIStatusError) else None
    sent = not waited and (error.sent if isinstance(error, APIConnectionError) else True)
    return FailedAttempt(type(error).__name__, status, seconds, sent)


def _with_retry_count(request: WireRequest, number: int) -> Mapping[str, str]:
    """Return the headers of attempt ``number``, with the retry count unless the caller has set one."""
    headers = request.headers
    if not request.count_retries or RETRY_HEADER in map(str.lower, headers):
        return headers
    return {**headers, RETRY_HEADER: str(number - 1)}


def _deployment(request: WireRequest) -> str:
    """Return the key of the request's rate limits and failures."""
    return request.deployment or errors.origin_of(request.url)


def _checked_retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}; it must be a whole number, 0 or more")
    return value
