"""Turn a ready request into its answer, whole or as a stream of events: the only part that speaks HTTP."""

from __future__ import annotations

import logging
import random as _random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any

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
from specclient.transport.pacing import Pacer
from specclient.transport.retry import DEFAULT_MAX_RETRIES, retrying
from specclient.transport.sse import Decoder, Event
from specclient.types.wire import WireReply, WireRequest

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
        self._pacer = Pacer(clock=clock, now=now, sleep=sleep, random=random)

    async def fetch(self, request: WireRequest) -> WireReply:
        """Send ``request`` and return its whole answer.

        Raises:
            APIStatusError: for a status of 400 or more, once retries are spent.
            APIConnectionError, APITimeoutError: where no whole answer came.
        """
        done = await self._send(request, stream=False)
        return WireReply(done.response.status_code, done.headers, done.response.content, done.attempts)

    def stream(self, request: WireRequest) -> AbstractAsyncContextManager[EventStream]:
        """Return a context that sends ``request``, gives its events, and frees the connection when left.

        Retries cover the time until the answer's headers; after that an error is the caller's to handle.

        Raises (on entry as :meth:`fetch`, and while iterating):
            APIResponseValidationError: for a web page where events were asked for.
            APIConnectionError, APITimeoutError: where the stream breaks off or falls silent.
        """
        return _Opened(partial(self._send, request, stream=True))

    async def aclose(self) -> None:
        """Close our own client of the running loop; a user's client is left open. Safe to call twice."""
        await self._own.aclose()

    async def _send(self, request: WireRequest, *, stream: bool) -> _Exchange:
        link = self._link
        if link is None:
            link = await self._own.link()
        limits = self._limits if request.timeout is None else timeout_of(request.timeout, link.vendor)
        retries = self._max_retries if request.max_retries is None else _checked_retries(request.max_retries)
        attempts = 0

        async def attempt() -> _Exchange:
            nonlocal attempts
            attempts += 1
            await self._pacer.wait(request.deployment)
            return await self._try(_Exchange(link, request, limits, attempts), stream=stream)

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
        try:
            response = await exchange.link.open(request, headers, exchange.limits, stream=stream)
        except exchange.failed as error:
            failure = exchange.broken(error, begun=False)
            if debug:
                _log.debug("try %d: %s failed: %s", number, request.method, failure)
            raise failure from error
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

    async def read_and_close(self, *, stream: bool = True) -> bytes:
        """Return the whole body; one that was not streamed has been read already."""
        if not stream:
            content: bytes = self.response.content
            return content
        try:
            return await self.link.read(self.response)
        except self.failed as error:
            raise self.broken(error) from error
        finally:
            await self.close()

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

    def __init__(self, exchange: _Exchange, whole: bytes | None) -> None:
        self.status: int = exchange.response.status_code
        self.headers: Mapping[str, str] = exchange.headers
        self.attempts = exchange.attempts
        self._exchange = exchange
        self._whole = whole

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return self.headers.get("x-request-id") or self.headers.get("request-id")

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._whole is not None:
            yield Event(self._whole)
            return
        decoder = Decoder()
        feed = decoder.feed
        chunks = self._exchange.link.chunks(self._exchange.response)
        try:
            async for chunk in chunks:
                for event in feed(chunk):
                    if event.data == b"[DONE]":
                        await _drain(chunks)
                    if event.data:  # an empty one keeps the connection alive and says nothing
                        yield event
        except self._exchange.failed as error:
            raise self._exchange.broken(error) from error
        for event in decoder.flush():
            if event.data:
                yield event


class _Opened:
    """The context of one stream: sends on entry, frees the connection on exit."""

    def __init__(self, send: Callable[[], Awaitable[_Exchange]]) -> None:
        self._send = send
        self._exchange: _Exchange | None = None

    async def __aenter__(self) -> EventStream:
        exchange = self._exchange = await self._send()
        response = exchange.response
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            raise failures.not_a_stream(response, await exchange.read_and_close(), exchange.request)
        # JSON where events were asked for (an error under status 200, a server that cannot stream) becomes
        # one event: its reader sees it, where the decoder would see no events at all.
        whole = await exchange.read_and_close() if kind == "application/json" else None
        return EventStream(exchange, whole)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exchange is not None:
            await self._exchange.close()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read on to the end of the body, which follows ``[DONE]`` at once: its connection can then be reused."""
    with anyio.move_on_after(_DRAIN_S):
        async for _ in chunks:
            pass


def _checked_retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}; it must be a whole number, 0 or more")
    return value
