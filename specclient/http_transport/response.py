"""Bodies of open responses, as bytes or as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from specclient.errors import APIError, OpenAIError, request_id_in
from specclient.http_transport import errors
from specclient.http_transport.attempt import HTTPAttempt
from specclient.http_transport.body_limits import body_too_large, check_ratio
from specclient.http_transport.cancellation import RequestCancelScope
from specclient.http_transport.clients.timeouts import AnswerTimeoutError
from specclient.http_transport.event_frames import stream_decoder
from specclient.http_transport.sse import ServerSentEvent
from specclient.types.wire import WireRequest

_DRAIN_S = 0.1
_MAX_BATCH = 32  # events; the event loop serves others after so many, a few milliseconds
_DONE_MAX_BYTES = 16  # of `[DONE]` with blanks around it


class ResponseBody:
    """A response whose body has not been read yet. Read it once, with :meth:`chunks` or :meth:`read`.

    Args:
        content: the body, if it has been read already.

    Attributes:
        status: the HTTP status.
        headers: the headers, names in lower case.
        attempts: the number of HTTP attempts, including the first.
        limits: the limits on its size.
    """

    def __init__(self, attempt: HTTPAttempt, scope: RequestCancelScope, content: bytes | None = None) -> None:
        self.status: int = attempt.response.status_code
        self.headers: Mapping[str, str] = attempt.headers
        self.attempts = attempt.attempts
        self._attempt = attempt
        self._scope = scope
        self.limits = attempt.response_limits
        self._begun = False
        self._content = content
        self._is_compressed = "content-encoding" in self.headers
        self._size = 0  # of the chunks of a compressed body so far

    @property
    def response(self) -> Any:
        """The HTTP library's own response object. Its request contains the key."""
        return self._attempt.library()

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        return request_id_in(self.headers)

    def complete(self, error: APIError) -> None:
        """Complete an error in what the body says; see :meth:`HTTPAttempt.complete`."""
        self._attempt.complete(error)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the decompressed body as it arrives.

        Raises:
            APIConnectionError, APITimeoutError: the body was interrupted, or no data arrived in time.
            ResponseTooLargeError: it was decompressed to too many bytes per received byte. Its size itself
                is not limited, because it is not kept.
            OpenAIError: the body has been iterated over before.
        """
        if self._content is not None:
            yield self._content
            return
        chunks = self._begin()
        while (chunk := await self._next(chunks)) is not None:
            yield chunk

    async def read(self) -> bytes:
        """Return the whole body. The library's response then has it as ``content``, too.

        Raises as :meth:`chunks`, and ResponseTooLargeError for a body of more than ``max_body_bytes``.
        """
        if self._content is None:
            self._check_unread()
            self._content = await self._scope.wait(self._attempt.read)
        return self._content

    def _check_unread(self) -> None:
        if self._begun:
            raise OpenAIError(
                "the body of this response has been iterated over and cannot be read again; "
                "call read() first, which keeps it"
            )

    def _begin(self) -> AsyncIterator[bytes]:
        self._check_unread()
        self._begun = True
        try:
            return self._attempt.adapter.chunks(self._attempt.response)
        except self._attempt.failed as error:
            failure = self._attempt.broken(error.with_traceback(None))
        try:
            raise failure
        finally:
            del failure  # as below

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            chunk = await self._scope.wait(chunks.__anext__)
        except StopAsyncIteration:
            return None
        except self._attempt.failed as error:
            # The library keeps its error: with a traceback that would be a reference cycle.
            failure = self._attempt.broken(error.with_traceback(None))
        else:
            if self._is_compressed:
                self._check_ratio(len(chunk))
            return chunk
        try:
            raise failure
        finally:
            del failure  # otherwise a reference cycle: its traceback holds this frame

    def _check_ratio(self, size: int) -> None:
        self._size += size
        received = self._attempt.adapter.received(self._attempt.response)
        if received is not None:
            check_ratio(self.limits, self._size, received)

    def _too_slow(self, seconds: float) -> APIError:
        """Return the error for an event that was not complete in time."""
        return self._attempt.broken(AnswerTimeoutError("did not complete an event of its stream", seconds))


class SSEStream(ResponseBody):
    """The events of one response, as they arrive: server-sent ones, or AWS's frames. Iterate once.

    Attributes:
        done: whether ``[DONE]`` was received. A stream that ends without it may have been cut by a proxy,
            or its vendor may not send it.
        open_ended: whether the body ended without the blank line that ends an event, so that the last event
            may be incomplete.
        captured: the bytes of the body as they arrive, for a caller who reads the response itself; None
            captures nothing.
    """

    done: bool = False
    open_ended: bool = False
    captured: deque[bytes] | None = None

    async def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        async for batch in self.batches():
            for event in batch:
                yield event

    async def batches(self) -> AsyncIterator[list[ServerSentEvent]]:
        """Iterate over lists of events: one list per read from the network, or several of a large read."""
        if self._content is not None:
            self._capture(self._content)
            yield [ServerSentEvent(self._content)]
            return
        decoder = stream_decoder(self.headers.get("content-type"), self.limits.max_event_bytes)
        most, size = self.limits.max_body_bytes, 0
        event_s, began_at = self._attempt.limits.body, None
        chunks = self._begin()
        while (chunk := await self._next(chunks)) is not None:
            size += len(chunk)
            if size > most:
                raise body_too_large(self.limits, size)
            self._capture(chunk)
            found = decoder.feed(chunk)
            if found or not decoder.is_within_event:
                began_at = None
            elif event_s is not None:  # chunks without an end of an event
                began_at = time.monotonic() if began_at is None else began_at
                if time.monotonic() - began_at > event_s:
                    raise self._too_slow(event_s)
            if batch := self._with_data(found):
                while len(batch) > _MAX_BATCH:
                    yield batch[:_MAX_BATCH]
                    batch = batch[_MAX_BATCH:]
                    await asyncio.sleep(0)
                if not self.done:
                    yield batch
                    continue
                if before_done := batch[:-1]:  # without waiting for the end of the body
                    yield before_done
                await self._drain(chunks)
                yield batch[-1:]
                return
        if batch := self._with_data(decoder.flush()):
            self.open_ended = True
            yield batch

    def _with_data(self, events: list[ServerSentEvent]) -> list[ServerSentEvent]:
        """Return the events with data, up to and including ``[DONE]``."""
        result: list[ServerSentEvent] = []
        for event in events:
            data = event.data
            if data:  # events without data keep the connection alive
                result.append(event)
                if len(data) < _DONE_MAX_BYTES and data.strip() == b"[DONE]":
                    self.done = True
                    break
        return result

    def _capture(self, chunk: bytes) -> None:
        if self.captured is not None:
            self.captured.append(chunk)

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read to the end of the body, which follows at once, so that the connection can be reused."""
        with contextlib.suppress(*self._attempt.failed, TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                async for chunk in chunks:
                    self._capture(chunk)


B = TypeVar("B", bound=ResponseBody)


class Sender(Protocol):
    """The function with which a :class:`ResponseContext` sends its request, retries included."""

    async def __call__(
        self, request: WireRequest, scope: RequestCancelScope, *, stream: bool
    ) -> HTTPAttempt: ...


class ResponseContext(Generic[B]):
    """A context manager that sends a request on entry and frees its connection on exit.

    Args:
        send: sends the request.
        request: the request.
        new_scope: creates the request's cancel scope, on entry.
        running: the scopes of running requests; contains this one's while the context is open.
        read: converts the response to the value of the context.
    """

    def __init__(
        self,
        send: Sender,
        request: WireRequest,
        new_scope: Callable[[WireRequest], RequestCancelScope],
        running: set[RequestCancelScope],
        read: Callable[[HTTPAttempt, RequestCancelScope], Awaitable[B]],
    ) -> None:
        self._send = send
        self._request = request
        self._new_scope = new_scope
        self._running = running
        self._read = read
        self._attempt: HTTPAttempt | None = None

    async def __aenter__(self) -> B:
        self._scope = self._new_scope(self._request)
        self._running.add(self._scope)
        try:
            return await self._scope.wait(self._open)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise

    async def _open(self) -> B:
        self._attempt = await self._send(self._request, self._scope, stream=True)
        return await self._read(self._attempt, self._scope)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.discard(self._scope)
        attempt = self._attempt
        if attempt is None:
            return
        if isinstance(error, APIError):
            attempt.complete(error)
        try:
            await attempt.close()
        finally:
            attempt.leave()


async def as_body(attempt: HTTPAttempt, scope: RequestCancelScope) -> ResponseBody:
    """Return the response as bytes."""
    return ResponseBody(attempt, scope)


async def _page(attempt: HTTPAttempt) -> tuple[Any, bytes]:
    content = await attempt.read_error()
    return attempt.library(), content


async def as_events(attempt: HTTPAttempt, scope: RequestCancelScope) -> SSEStream:
    """Return the response as events.

    A JSON body (an error with status 200, or a server that cannot stream) becomes one event, because the
    decoder would find no events in it.

    Raises:
        APIResponseValidationError: the response is an HTML page.
    """
    kind = attempt.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        raise errors.not_a_stream(*await _page(attempt), attempt.request)
    content = await attempt.read_and_close() if kind == "application/json" else None
    return SSEStream(attempt, scope, content)
