"""Turn an open response into its body, as bytes or as server-sent events, until its reader leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from specclient.errors import APIError, OpenAIError
from specclient.transport import errors
from specclient.transport.attempt import HTTPAttempt
from specclient.transport.cancellation import RequestCancelScope
from specclient.transport.sse import ServerSentEvent, SSEDecoder
from specclient.types.wire import WireRequest

_DRAIN_S = 0.1
_DONE_ROOM = 16  # bytes that `[DONE]` and blanks around it may take


class ResponseBody:
    """An answer whose body has not been read yet; read it once, by :meth:`chunks` or by :meth:`read`.

    Attributes:
        status: of the answer.
        headers: its headers, names in lower case.
        attempts: tries it took, the first included.
    """

    def __init__(self, exchange: HTTPAttempt, guard: RequestCancelScope) -> None:
        self.status: int = exchange.response.status_code
        self.headers: Mapping[str, str] = exchange.headers
        self.attempts = exchange.attempts
        self._exchange = exchange
        self._guard = guard
        self._begun = False
        self._whole: bytes | None = None

    @property
    def response(self) -> Any:
        """The HTTP library's own object; its request carries the key."""
        return self._exchange.library()

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return self.headers.get("x-request-id") or self.headers.get("request-id")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body, decompressed, as it arrives.

        Raises:
            APIConnectionError, APITimeoutError: where it breaks off or falls silent.
            OpenAIError: where the body has been iterated over before.
        """
        if self._whole is not None:
            yield self._whole
            return
        chunks = self._begin()
        while (chunk := await self._next(chunks)) is not None:
            yield chunk

    async def read(self) -> bytes:
        """Return the whole body; the library's response then has it as ``content``, too.

        Raises as :meth:`chunks`.
        """
        if self._whole is None:
            self._check_unread()
            self._whole = await self._guard.wait(self._exchange.read)
        return self._whole

    def _check_unread(self) -> None:
        if self._begun:
            raise OpenAIError(
                "the body of this answer has been iterated over, and cannot be read a second time; "
                "read() it first, which keeps it"
            )

    def _begin(self) -> AsyncIterator[bytes]:
        self._check_unread()
        self._begun = True
        return self._exchange.link.chunks(self._exchange.response)

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            return await self._guard.wait(chunks.__anext__)
        except StopAsyncIteration:
            return None
        except self._exchange.failed as error:
            failure = self._exchange.broken(error.with_traceback(None))  # the library keeps it: a circle
        try:
            raise failure
        finally:
            del failure  # else its traceback's frame holds it: a circle


class SSEStream(ResponseBody):
    """The events of one answer, as they arrive; iterate once.

    Attributes:
        done: whether ``[DONE]`` has come. A stream that ends without it may have been cut by a proxy, or be
            of a vendor that sends none.
        open_ended: whether the body ended without the blank line that ends an event: what comes last may be
            half of one.
    """

    done: bool = False
    open_ended: bool = False

    async def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        async for batch in self.batches():
            for event in batch:
                yield event

    async def batches(self) -> AsyncIterator[list[ServerSentEvent]]:
        """Iterate over the events as they came: those of one read from the network together."""
        if self._whole is not None:
            yield [ServerSentEvent(self._whole)]
            return
        decoder = SSEDecoder()
        chunks = self._begin()
        while (chunk := await self._next(chunks)) is not None:
            if batch := self._told(decoder.feed(chunk)):
                if not self.done:
                    yield batch
                    continue
                if said := batch[:-1]:  # not held back by what the connection still does
                    yield said
                await self._drain(chunks)
                yield batch[-1:]
                return
        if batch := self._told(decoder.flush()):
            self.open_ended = True
            yield batch

    def _told(self, events: list[ServerSentEvent]) -> list[ServerSentEvent]:
        """Return the events that say something, up to ``[DONE]``, whatever the connection still does."""
        told: list[ServerSentEvent] = []
        for event in events:
            data = event.data
            if data:  # an empty one keeps the connection alive
                told.append(event)
                if len(data) < _DONE_ROOM and data.strip() == b"[DONE]":
                    self.done = True
                    break
        return told

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read on to the end of the body, which follows at once: its connection can then be reused."""
        with contextlib.suppress(*self._exchange.failed, TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in chunks:
                    pass


B = TypeVar("B", bound=ResponseBody)


class Sender(Protocol):
    """How an :class:`ResponseContext` gets its response: ``Transport._send``."""

    async def __call__(
        self, request: WireRequest, guard: RequestCancelScope, *, stream: bool
    ) -> HTTPAttempt: ...


class ResponseContext(Generic[B]):
    """The context of one answer: sends on entry, frees the connection on exit.

    Args:
        guard: makes the request's guard, on entry.
        read: turns the response into what the context gives.
        running: the guards of what runs; this one's is among them while the context is open.
    """

    def __init__(
        self,
        send: Sender,
        request: WireRequest,
        guard: Callable[[WireRequest], RequestCancelScope],
        running: set[RequestCancelScope],
        read: Callable[[HTTPAttempt, RequestCancelScope], Awaitable[B]],
    ) -> None:
        self._send = send
        self._request = request
        self._guard_of = guard
        self._running = running
        self._read = read
        self._exchange: HTTPAttempt | None = None

    async def __aenter__(self) -> B:
        self._guard = self._guard_of(self._request)
        self._running.add(self._guard)
        try:
            return await self._guard.wait(self._open)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise

    async def _open(self) -> B:
        self._exchange = await self._send(self._request, self._guard, stream=True)
        return await self._read(self._exchange, self._guard)

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
        try:
            await exchange.close()
        finally:
            exchange.leave()


async def as_body(exchange: HTTPAttempt, guard: RequestCancelScope) -> ResponseBody:
    """Return the answer as bytes."""
    return ResponseBody(exchange, guard)


async def _page(exchange: HTTPAttempt) -> tuple[Any, bytes]:
    content = await exchange.read_and_close()
    return exchange.library(), content


async def as_events(exchange: HTTPAttempt, guard: RequestCancelScope) -> SSEStream:
    """Return the answer as events.

    JSON where events were asked for (an error under status 200, a server that cannot stream) becomes one
    event: its reader sees it, where the decoder would see no events at all.

    Raises:
        APIResponseValidationError: for a web page.
    """
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        raise errors.not_a_stream(*await _page(exchange), exchange.request)
    stream = SSEStream(exchange, guard)
    if kind == "application/json":
        stream._whole = await exchange.read_and_close()
    return stream
