"""Streams of chunks that callers iterate over, asynchronous and synchronous."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from specclient.call.errors import caller_stream_error
from specclient.errors import APIConnectionError, APIError
from specclient.http_transport.body_limits import DEFAULT_RESPONSE_LIMITS
from specclient.http_transport.live_response import captured_pieces, captured_pieces_async, live_response
from specclient.runtime.official_classes import SeenAsOfficial
from specclient.types.call import Call
from specclient.types.limit import ResponseLimits

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AsyncStream(SeenAsOfficial, Generic[T]):
    """A streamed answer: ``async for chunk in stream``.

    Leaving early (``break`` and ``close``, or the ``async with`` block) frees the connection at once.

    Args:
        batches: yields lists of chunks. The chunks of one network read are one list, so that they cost no
            task switch each.
        meta: returns the record of the call.
        http: an object whose ``response`` is the HTTP library's response; None where no HTTP was used.
        dialect: the wire format of the chunks where they are still bytes; None where they are decoded.

    Attributes:
        closed: whether it was read to its end, failed or was closed.
        cached: whether the response cache answers the call.
    """

    official_name = "AsyncStream"
    cached = False

    def __init__(
        self,
        batches: AsyncGenerator[list[T], None],
        meta: Callable[[], Call],
        http: Any = None,
        dialect: Any = None,
    ) -> None:
        self.http = http
        self.dialect = dialect
        self.closed = False
        self._live: Any = None
        self._batches = batches
        self._ready: deque[T] = deque()
        self._meta = meta
        self._convert: Callable[[list[T]], list[T]] | None = None
        self._reader: asyncio.Task[object] | None = None
        self._reader_left: asyncio.Event | None = None
        self._close_lock = asyncio.Lock()

    @property
    def response(self) -> Any:
        """The HTTP library's response, which may be read in place of the stream; None where no HTTP was used.

        Its ``close()`` ends the stream.
        """
        if self._live is None and (original := getattr(self.http, "response", None)) is not None:
            self._live = live_response(original, self, limits_of(self), is_async=True)
        return self._live

    def share_response(self, response: Any) -> Self:
        """Set the HTTP response, where another stream reads its body; return this stream."""
        self._live = response
        return self

    def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the bytes of the body, in place of the chunks."""
        http: Any = self.http
        if not hasattr(http, "captured"):  # the chunks are the bytes
            return cast("AsyncIterator[bytes]", self)
        http.captured = http.captured or deque()
        return captured_pieces_async(http, self._read_on)

    async def _read_on(self) -> bool:
        """Read the next chunks for their bytes. An event with an error ends the stream quietly."""
        try:
            await self.next_batch()
        except (StopAsyncIteration, APIError) as end:
            if isinstance(end, APIConnectionError):
                raise
            return False
        return True

    @property
    def meta(self) -> Call:
        """The record of the call, complete once the stream has ended; until then its status is ``open``."""
        return self._meta()

    def for_caller(self, convert: Callable[[list[T]], list[T]]) -> Self:
        """Give a caller what the ``openai`` package gives; return this stream.

        Args:
            convert: changes each list of chunks before it is read.
        """
        self._convert = convert
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            self._ready.extend(await self.next_batch())
        return self._ready.popleft()

    async def next_batch(self) -> list[T]:
        """Return the next chunks that arrived together.

        Raises:
            StopAsyncIteration: at the end of the stream.
        """
        self._reader = reader = asyncio.current_task()
        assert reader is not None
        cancels_before = reader.cancelling()
        try:
            batch = await self._batches.__anext__()
            return batch if self._convert is None else self._convert(batch)
        except StopAsyncIteration:
            self.closed = True
            raise
        except APIError as error:
            self.closed = True
            if self._convert is None or error.reported_status is None:
                raise  # without a variable, whose frame the error's traceback would hold
            failure = caller_stream_error(error)
        except asyncio.CancelledError:
            # close() in another task ends the stream by a cancel; any other cancel must take effect.
            if self._reader_left is None or reader.uncancel() > cancels_before:
                raise
            raise StopAsyncIteration from None
        finally:
            self._reader = None
            del reader  # it may keep the error that is raised here, whose traceback holds this frame
            if self._reader_left is not None:
                self._reader_left.set()
        try:
            raise failure  # outside the handler, so that it has no context
        finally:
            del failure  # its traceback holds this frame

    async def close(self) -> None:
        """End the stream; may be called twice, and from another task than the reader's."""
        self.closed = True
        async with self._close_lock:
            if self._reader is not None:
                self._reader_left = asyncio.Event()
                self._reader.cancel()
                await self._reader_left.wait()
            self._ready.clear()
            await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncStreamSource(Protocol[T_co]):
    """The source of a synchronous stream: a task in the event loop's thread."""

    def next(self) -> T_co:
        """Wait for the next chunk.

        Raises:
            StopIteration: at the end.
            OpenAIError: the error that ended the stream.
        """
        ...

    def meta(self) -> Call:
        """Return the record of the call."""
        ...

    def async_stream(self) -> AsyncStream[Any]:
        """Return the asynchronous stream that is read."""
        ...

    def keep_captured(self) -> None:
        """Keep the captured bytes of the body, which are dropped with the first chunk otherwise."""
        ...

    def close(self) -> None:
        """Cancel the task and wait for it to end."""
        ...

    def cancel_nowait(self) -> None:
        """Cancel the task without waiting."""
        ...


class Stream(SeenAsOfficial, Generic[T]):
    """A streamed answer: ``for chunk in stream``. Leaving early works as for :class:`AsyncStream`."""

    official_name = "Stream"

    def __init__(self, source: SyncStreamSource[T]) -> None:
        self._source = source
        self.closed = False
        self._live: Any = None

    @property
    def meta(self) -> Call:
        """The record of the call, complete once the stream has ended; until then its status is ``open``."""
        return self._source.meta()

    @property
    def response(self) -> Any:
        """The HTTP library's response; see :attr:`AsyncStream.response`."""
        stream = self._source.async_stream()
        if self._live is None and (original := getattr(stream.http, "response", None)) is not None:
            self._live = live_response(original, self, limits_of(stream), is_async=False)
        return self._live

    def share_response(self, response: Any) -> Self:
        """Set the HTTP response, where another stream reads its body; return this stream."""
        self._live = response
        return self

    def pieces(self) -> Iterator[bytes]:
        """Iterate over the bytes of the body, in place of the chunks."""
        http: Any = self._source.async_stream().http
        if not hasattr(http, "captured"):  # the chunks are the bytes
            return cast("Iterator[bytes]", self)
        self.keep_captured()
        return captured_pieces(http, self._read_on)

    def keep_captured(self) -> None:
        """Keep the bytes of the body, which are dropped with the first chunk otherwise."""
        self._source.keep_captured()

    def _read_on(self) -> bool:
        """Read the next chunk for its bytes. An event with an error ends the stream quietly."""
        try:
            next(self)
        except (StopIteration, APIError) as end:
            if isinstance(end, APIConnectionError):
                raise
            return False
        return True

    @property
    def dialect(self) -> Any:
        """The wire format of the chunks where they are still bytes; None where they are decoded."""
        return self._source.async_stream().dialect

    def async_stream(self) -> AsyncStream[Any]:
        """Return the asynchronous stream that the chunks come from."""
        return self._source.async_stream()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._source.next()
        except (StopIteration, APIError):
            self.closed = True
            raise

    def close(self) -> None:
        """End the stream; may be called twice."""
        self.closed = True
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._source.cancel_nowait()


def limits_of(body: AsyncStream[Any]) -> ResponseLimits:
    """Return the limits of the client that received a body; the default ones where no HTTP was used."""
    limits: ResponseLimits = getattr(body.http, "limits", DEFAULT_RESPONSE_LIMITS)
    return limits


def attempts_of(body: AsyncStream[Any] | Stream[Any]) -> int:
    """Return the number of HTTP attempts that a stream took; 1 where no HTTP was used."""
    stream = body.async_stream() if isinstance(body, Stream) else body
    attempts: int = getattr(stream.http, "attempts", 1)
    return attempts
