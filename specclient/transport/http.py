"""Turn a ready request into its answer, whole or as a stream of events: the only part that speaks HTTP."""

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
    CircuitOpenError,
    ConfigurationError,
)
from specclient.transport import errors
from specclient.transport.attempt import RETRY_HEADER, HTTPAttempt, merged_headers
from specclient.transport.cancellation import RequestCancelScope
from specclient.transport.circuit_breaker import BreakerPermit, CircuitBreaker
from specclient.transport.clients.adapters import MAX_CONNECTIONS, ClientAdapter, adapter_of
from specclient.transport.clients.per_loop import ClientKind, LoopClients
from specclient.transport.clients.timeouts import DEFAULT_TIMEOUT_SECONDS, own_timeout, seconds_of
from specclient.transport.pacing.pacer import Pacer
from specclient.transport.response import ResponseBody, ResponseContext, SSEStream, as_body, as_events
from specclient.transport.retry import DEFAULT_MAX_RETRIES, retrying
from specclient.transport.uploads import body_of, can_send_again
from specclient.types.limit import CircuitRule, DeploymentLimit
from specclient.types.wire import FailedAttempt, WireRequest, WireResponse

__all__ = ["ResponseBody", "SSEStream", "Transport"]

_log = logging.getLogger("specclient")
_CIRCUIT = CircuitRule()


class Transport:
    """Sends requests, with retries and pacing; may be used from several event loops and threads.

    Args:
        http_client: the user's own ``httpx.AsyncClient`` or ``httpx.Client`` (or httpx2's), used as it is and
            never closed here; None for our own.
        timeout: seconds, ``math.inf`` for none, or an ``httpx.Timeout``; None for the user's client's own
            where one was set on it, else 600 s with 5 s to connect.
        max_retries: tries after the first, for requests that name no number.
        kind: what our own client's sockets are: ``aiohttp`` (half the CPU) or ``httpx``.
        connections: the most that our own client may hold at once, in each event loop.
        limits: what deployments take, by ``provider/model``, where more is known than their headers tell.
        circuit: when a deployment that keeps failing is given a rest; None for never.
        clock: seconds, monotonic. ``now``: seconds since the epoch. ``sleep``: waits for seconds.
        random: draws from [0, 1).

    Raises:
        ConfigurationError: for an argument that cannot be used.
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
        circuit: CircuitRule | None = _CIRCUIT,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._set_defaults(http_client, timeout, max_retries)
        self._own = LoopClients(kind, connections)
        self._clock, self._now, self._sleep, self._random = clock, now, sleep, random
        self._running: set[RequestCancelScope] = set()
        self._pacer = Pacer(clock=clock, now=now, sleep=sleep, random=random, limits=limits)
        self._breaker = CircuitBreaker(circuit, clock=clock)

    def sharing(self, *, http_client: Any, timeout: Any, max_retries: int) -> Transport:
        """Return a transport of other defaults, on the same connections and what is known of rate limits.

        Args:
            http_client, timeout, max_retries: as for the class.
        """
        other = copy.copy(self)
        other._set_defaults(http_client, timeout, max_retries)
        return other

    def _set_defaults(self, http_client: Any, timeout: Any, max_retries: int) -> None:
        self._max_retries = _checked_retries(max_retries)
        self._link = None if http_client is None else adapter_of(http_client)
        if timeout is None:
            own = None if http_client is None else own_timeout(http_client)
            timeout = DEFAULT_TIMEOUT_SECONDS if own is None else own
        self._limits = seconds_of(timeout)

    def prepare(self) -> None:
        """Import what our own client sends by; takes a while (0.2 s), so not on the event loop."""
        if self._link is None:
            self._own.prepare()

    async def fetch(self, request: WireRequest) -> WireResponse:
        """Send ``request`` and return its whole answer.

        Raises:
            APIStatusError: for a status other than 2xx, once retries are spent.
            APIConnectionError, APITimeoutError: where no whole answer came.
            DeadlineExceededError: where ``deadline_s`` passed first.
            CircuitOpenError: where the deployment has been failing, and is given a rest.
            ConfigurationError: for a timeout, deadline or number of retries that is none.
        """
        guard = self._guard(request)
        self._running.add(guard)
        try:
            done = await guard.wait(partial(self._send, request, guard, stream=False))
        finally:
            self._running.discard(guard)
        done.leave()
        response = done.response
        return WireResponse(
            response.status_code, done.headers, response.content, done.attempts, done.secrets, done.library
        )

    def open(self, request: WireRequest) -> AbstractAsyncContextManager[ResponseBody]:
        """Return a context that sends ``request``, gives its answer unread, and frees the connection.

        Retries cover the time until the answer's headers; after that an error is the caller's to handle.
        Raises on entry as :meth:`fetch`.
        """
        return ResponseContext(self._send, request, self._guard, self._running, as_body)

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[SSEStream]:
        """Return a context that sends ``request``, gives its events, and frees the connection when left.

        Retries cover the time until the answer's headers; after that an error is the caller's to handle.

        Raises (on entry as :meth:`fetch`, and while iterating):
            APIResponseValidationError: for a web page where events were asked for.
            APIConnectionError, APITimeoutError: where the stream breaks off or falls silent.
        """
        return ResponseContext(self._send, request, self._guard, self._running, as_events)

    async def aclose(self) -> None:
        """End what still runs in the running loop, then close our own client of that loop.

        Whoever waits for an answer gets an APIConnectionError. A user's client is left open. Safe to call
        twice.
        """
        loop = asyncio.get_running_loop()
        for guard in list(self._running):
            if guard.loop is loop:
                guard.end()
        await self._own.aclose()

    def used(self, request: WireRequest, tokens: int) -> None:
        """Tell how many tokens, prompt and answer, a request has used; later ones are paced by it."""
        self._pacer.used(_lane(request), request.tokens, tokens)

    def _guard(self, request: WireRequest) -> RequestCancelScope:
        return RequestCancelScope(request, self._clock)

    async def _send(self, request: WireRequest, guard: RequestCancelScope, *, stream: bool) -> HTTPAttempt:
        if request.content is not None and not isinstance(request.content, bytes):
            request = replace(request, content=body_of(request.content))
        link: ClientAdapter = self._link or await self._own.adapter()
        limits = self._limits if request.timeout is None else seconds_of(request.timeout)
        retries = self._max_retries if request.max_retries is None else _checked_retries(request.max_retries)
        retries = retries if request.retryable else 0
        told: list[FailedAttempt] = []  # of a try that has failed, until it is known what follows

        async def attempt() -> HTTPAttempt:
            guard.attempts += 1
            exchange = HTTPAttempt(link, request, limits, guard.attempts)
            begun = self._clock()
            try:
                return await self._try(exchange, guard, stream=stream)
            except APIError as error:
                if isinstance(error, CircuitOpenError) and guard.failure is not None:
                    if isinstance(guard.failure, APIConnectionError):
                        guard.failure.sent = False
                    raise guard.failure from None  # what this caller's own tries have met says more
                guard.failure = error
                told[:] = [_try_of(error, self._clock() - begun, waited=exchange.turn is None)]
                raise

        try:
            return await attempt()
        except APIError as error:
            if not retries:
                raise
            failed = [error]

        async def replay() -> HTTPAttempt:
            # The first try ran outside the loop, whose making costs as much as a twentieth of a request.
            if failed:
                raise failed.pop()
            return await attempt()

        def before_wait(seconds: float, error: BaseException | None) -> bool:
            guard.check_wait(seconds)
            if self._breaker.is_open(_lane(request), seconds) or not can_send_again(request):
                return False
            _log.info("retry %d of %d in %.3f s: %s", guard.attempts, retries, seconds, type(error).__name__)
            if request.on_failed_attempt is not None and told:
                request.on_failed_attempt(told.pop())
            return True

        loop = retrying(
            retries, sleep=self._sleep, random=self._random, now=self._now, before_wait=before_wait
        )
        return await loop(replay)

    async def _try(self, exchange: HTTPAttempt, guard: RequestCancelScope, *, stream: bool) -> HTTPAttempt:
        """Make one try, when breaker and pacer let it; both learn how it ends."""
        lane = _lane(exchange.request)
        self._breaker.check(lane)  # before the wait for a turn, and after it
        turn = exchange.turn = await self._pacer.enter(lane, exchange.request.tokens, guard)
        try:
            started = self._breaker.enter(lane)
            failure: BaseException | None = None
            try:
                await self._exchange(exchange, started, stream=stream)
            except BaseException as error:
                failure = error
                raise
            finally:
                self._breaker.leave(started, failure)
        except BaseException as error:
            turn.leave()
            if isinstance(error, APIError):
                self._pacer.refused(lane, turn, error, exchange.headers)
            raise
        self._pacer.served(lane, turn, exchange.headers)
        return exchange

    async def _exchange(self, exchange: HTTPAttempt, started: BreakerPermit, *, stream: bool) -> None:
        apart = stream or started.probe  # a probe is sent for the head, and its body may be long in coming
        request, number = exchange.request, exchange.attempts
        if request.auth is not None:
            request = replace(request, headers=merged_headers(request.headers, await request.auth()))
            exchange.request = request
        debug = _log.isEnabledFor(logging.DEBUG)
        start = self._clock() if debug else 0.0
        failure = None
        try:
            headers = _counted(request, number)
            response = await exchange.link.open(request, headers, exchange.limits, stream=apart)
        except exchange.failed as error:
            failure = exchange.broken(error, begun=False)
        if failure is not None:
            if debug:
                _log.debug("try %d: %s failed: %s", number, request.method, failure)
            raise failure
        if debug:
            where, took = errors.origin_of(request.url), self._clock() - start
            _log.debug("try %d: %s %s: %d, %.3f s", number, request.method, where, response.status_code, took)
        exchange.take(response)
        self._breaker.answered(started, response.status_code)
        if not 200 <= response.status_code < 300:
            content = await exchange.read_and_close(stream=apart)
            raise errors.status_error_of(exchange.library(), content, request)
        if apart and not stream:
            await exchange.read_and_close()


def _try_of(error: APIError, seconds: float, *, waited: bool) -> FailedAttempt:
    """Return what is told of a failed try; one that only waited for its turn was not sent."""
    status = error.status_code if isinstance(error, APIStatusError) else None
    sent = not waited and (error.sent if isinstance(error, APIConnectionError) else True)
    return FailedAttempt(type(error).__name__, status, seconds, sent)


def _counted(request: WireRequest, number: int) -> Mapping[str, str]:
    """Return the headers of try ``number``: with how many came before it, unless the caller sets that."""
    headers = request.headers
    if not request.count_retries or any(name.lower() == RETRY_HEADER for name in headers):
        return headers
    return {**headers, RETRY_HEADER: str(number - 1)}


def _lane(request: WireRequest) -> str:
    """Return what limits and failures are kept by."""
    return request.deployment or errors.origin_of(request.url)


def _checked_retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}; it must be a whole number, 0 or more")
    return value
