"""Turn a ready request into its answer, whole or as a stream of events: the only part that speaks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as _random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import anyio

from specclient.errors import APIConnectionError, APIError, ConfigurationError
from specclient.transport import failures
from specclient.transport.clients import (
    DEFAULT_TIMEOUT,
    Kind,
    Link,
    LoopClients,
    Timeout,
    default_timeout,
    link_of,
    timeout_of,
)
from specclient.transport.guard import Guard
from specclient.transport.pacing import Pacer
from specclient.transport.retry import DEFAULT_MAX_RETRIES, retrying
from specclient.transport.sse import Decoder, Event
from specclient.types.wire import Secrets, WireReply, WireRequest

__all__ = ["EventStream", "Timeout", "Transport"]

_log = logging.getLogger("specclient")
_RETRY_HEADER = "x-stainless-retry-count"
_DRAIN_S = 0.1
_CLOSE_S = 1.0


class Transport:
    """Sends requests, with retries and pacing; may be used from several event loops and threads.

    Args:
        http_client: the user's own ``httpx.AsyncClient`` or ``httpx.Client`` (or httpx2's), used as it is and
            never closed here; None for our own.
        timeout: seconds, ``math.inf`` for none, or an ``httpx.Timeout``; None for the user's client's own
            where one was set on it, else 600 s with 5 s to connect.
        max_retries: tries after the first, for requests that name no number.
        kind: what our own client's sockets are: ``aiohttp`` (half the CPU) or ``httpx``.
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
        kind: Kind = "aiohttp",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._max_retries = _checked_retries(max_retries)
        self._own = LoopClients(kind)
        self._link = None if http_client is None else link_of(http_client)
        if timeout is None:
            timeout = DEFAULT_TIMEOUT if http_client is None else default_timeout(http_client)
        self._limits = timeout_of(timeout) if self._link is None else timeout_of(timeout, self._link.vendor)
        self._clock, self._now, self._sleep, self._random = clock, now, sleep, random
        self._running: set[Guard] = set()
        self._pacer = Pacer(clock=clock, now=now, sleep=sleep, random=random)

    async def fetch(self, request: WireRequest) -> WireReply:
        """Send ``request`` and return its whole answer.

        Raises:
            APIStatusError: for a status of 400 or more, once retries are spent.
            APIConnectionError, APITimeoutError: where no whole answer came.
        """
        guard = Guard(request)
        self._running.add(guard)
        try:
            done = await guard.wait(partial(self._send, request, guard, stream=False))
        finally:
            self._running.discard(guard)
        return WireReply(
            done.response.status_code, done.headers, done.response.content, done.attempts, done.secrets
        )

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[EventStream]:
        """Return a context that sends ``request``, gives its events, and frees the connection when left.

        Retries cover the time until the answer's headers; after that an error is the caller's to handle.

        Raises (on entry as :meth:`fetch`, and while iterating):
            APIResponseValidationError: for a web page where events were asked for.
            APIConnectionError, APITimeoutError: where the stream breaks off or falls silent.
        """
        return _Opened(self._send, request, self._running)

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

    async def _send(self, request: WireRequest, guard: Guard, *, stream: bool) -> _Exchange:
        link = self._link
        if link is None:
            link = await self._own.link()
        limits = self._limits if request.timeout is None else timeout_of(request.timeout, link.vendor)
        retries = self._max_retries if request.max_retries is None else _checked_retries(request.max_retries)

        async def attempt() -> _Exchange:
            guard.attempts += 1
            await self._pacer.wait(request.deployment)
            return await self._try(_Exchange(link, request, limits, guard.attempts), stream=stream)

        try:
            return await attempt()
        except APIError as error:
            if not retries:
                raise
            failed = [error]

        async def replay() -> _Exchange:
            # The first try ran outside the loop, whose making costs as much as a twentieth of a request.
            if failed:
                raise failed.pop()
            return await attempt()

        return await retrying(retries, sleep=self._sleep, random=self._random, now=self._now)(replay)

    async def _try(self, exchange: _Exchange, *, stream: bool) -> _Exchange:
        request, number = exchange.request, exchange.attempts
        headers = request.headers if number == 1 else {**request.headers, _RETRY_HEADER: str(number - 1)}
        debug = _log.isEnabledFor(logging.DEBUG)
        start = self._clock() if debug else 0.0
        failure = None
        try:
            response = await exchange.link.open(request, headers, exchange.limits, stream=stream)
        except exchange.failed as error:
            failure = exchange.broken(error, begun=False)
        if failure is not None:
            if debug:
                _log.debug("try %d: %s failed: %s", number, request.method, failure)
            raise failure
        if debug:
            where, took = failures.origin_of(request.url), self._clock() - start
            _log.debug("try %d: %s %s: %d, %.3f s", number, request.method, where, response.status_code, took)
        exchange.take(response)
        if response.status_code >= 400:
            refusal = failures.refusal(response, await exchange.read_and_close(stream=stream), request)
            self._pacer.refused(request.deployment, refusal)
            raise refusal
        self._pacer.learn(request.deployment, exchange.headers)
        return exchange


class _Exchange:
    """One try: what was sent, by which link, within which time limits, and the response once it has come."""

    __slots__ = ("attempts", "failed", "headers", "limits", "link", "request", "response")

    def __init__(self, link: Link, request: WireRequest, limits: Any, attempts: int) -> None:
        self.link = link
        self.request = request
        self.limits = limits
        self.attempts = attempts
        self.failed = failures.caught(link.vendor)
        self.response: Any = None
        self.headers: dict[str, str] = {}

    def take(self, response: Any) -> None:
        self.response = response
        # Straight from the bytes: reading a header by name through the library costs microseconds each time.
        self.headers = {
            name.lower().decode("latin-1"): v.decode("latin-1") for name, v in response.headers.raw
        }

    def broken(self, error: BaseException, *, begun: bool = True) -> APIConnectionError:
        return failures.connection_failure(error, self.request, self.limits, begun=begun)

    def secrets(self) -> Secrets:
        return failures.secrets_of(self.request, self.response)

    async def read_and_close(self, *, stream: bool = True) -> bytes:
        """Return the whole body; one that was not streamed has been read already."""
        if not stream:
            content: bytes = self.response.content
            return content
        try:
            return await self.link.read(self.response)
        except self.failed as error:
            failure = self.broken(error)
        finally:
            await self.close()
        raise failure

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_S, shield=True):  # a cancelled caller must still free its connection
            await self.link.close(self.response)


class EventStream:
    """The events of one answer, as they arrive; iterate once.

    Attributes:
        status: of the answer.
        headers: its headers, names in lower case.
        attempts: tries it took, the first included.
    """

    def __init__(self, exchange: _Exchange, whole: bytes | None, guard: Guard) -> None:
        self.status: int = exchange.response.status_code
        self.headers: Mapping[str, str] = exchange.headers
        self.attempts = exchange.attempts
        self._exchange = exchange
        self._whole = whole
        self._guard = guard

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return self.headers.get("x-request-id") or self.headers.get("request-id")

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._whole is not None:
            yield Event(self._whole)
            return
        decoder = Decoder()
        chunks = self._exchange.link.chunks(self._exchange.response)
        while (chunk := await self._next(chunks)) is not None:
            for event in decoder.feed(chunk):
                if event.data.strip() == b"[DONE]":  # the end, whatever the connection still does
                    await self._drain(chunks)
                    yield event
                    return
                if event.data:  # an empty one keeps the connection alive and says nothing
                    yield event
        for event in decoder.flush():
            if event.data:
                yield event

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            return await self._guard.wait(chunks.__anext__)
        except StopAsyncIteration:
            return None
        except self._exchange.failed as error:
            failure = self._exchange.broken(error)
        raise failure

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read on to the end of the body, which follows at once: its connection can then be reused."""
        with contextlib.suppress(*self._exchange.failed), anyio.move_on_after(_DRAIN_S):
            async for _ in chunks:
                pass


class _Send(Protocol):
    async def __call__(self, request: WireRequest, guard: Guard, *, stream: bool) -> _Exchange: ...


class _Opened:
    """The context of one stream: sends on entry, frees the connection on exit."""

    def __init__(self, send: _Send, request: WireRequest, running: set[Guard]) -> None:
        self._send = send
        self._request = request
        self._running = running
        self._exchange: _Exchange | None = None

    async def __aenter__(self) -> EventStream:
        self._guard = Guard(self._request)
        self._running.add(self._guard)
        try:
            return await self._guard.wait(self._open)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise

    async def _open(self) -> EventStream:
        exchange = self._exchange = await self._send(self._request, self._guard, stream=True)
        response = exchange.response
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            raise failures.not_a_stream(response, await exchange.read_and_close(), exchange.request)
        # JSON where events were asked for (an error under status 200, a server that cannot stream) becomes
        # one event: its reader sees it, where the decoder would see no events at all.
        whole = await exchange.read_and_close() if kind == "application/json" else None
        return EventStream(exchange, whole, self._guard)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.discard(self._guard)
        exchange = self._exchange
        if exchange is None:
            return
        if isinstance(error, APIError):  # a dialect's, too, which knows neither tries nor secrets
            error.attempts = exchange.attempts
            exchange.secrets().clean(error)
        await exchange.close()


def _checked_retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}; it must be a whole number, 0 or more")
    return value
