"""Responses of httpx or httpx2 whose body is read through a stream of this package.

A caller may read or close the HTTP response of a stream itself. The library's own response cannot be used for
that, because this package reads its bytes for the call's record, in another event loop or by aiohttp.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

from specclient.http_transport.body_limits import BodyReader
from specclient.types.limit import ResponseLimits


class BodySource(Protocol):
    """The stream behind a live response."""

    @property
    def closed(self) -> bool:
        """Whether it was read to its end, failed or was closed."""
        ...

    def pieces(self) -> Any:
        """Iterate over the bytes of the body; asynchronous for an asynchronous stream."""
        ...

    def close(self) -> Any:
        """End the stream; awaitable for an asynchronous stream."""
        ...


def live_response(original: Any, source: BodySource, limits: ResponseLimits, *, is_async: bool) -> Any:
    """Return a response with the head of ``original`` and the body of ``source``.

    Its ``read()`` keeps no more than ``limits`` allow, and raises ResponseTooLargeError.
    """
    modules = (cls.__module__.partition(".")[0] for cls in type(original).__mro__)
    library = next((name for name in modules if name in ("httpx", "httpx2")), None)
    if library is None:  # of a user's own class
        return original
    sync_body, async_body = _body_classes(library)
    body = (async_body if is_async else sync_body)(source)
    return _response_class(library)(original, source, limits, body)


@functools.cache
def _body_classes(name: str) -> tuple[Any, Any]:
    """Return the classes of a response's sync and async body, of httpx or httpx2."""
    library: Any = sys.modules[name]

    class SyncSourceBody(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, source: BodySource) -> None:
            self._source = source

        def __iter__(self) -> Iterator[bytes]:
            yield from self._source.pieces()

        def close(self) -> None:
            self._source.close()

    class AsyncSourceBody(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, source: BodySource) -> None:
            self._source = source

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._source.pieces():
                yield piece

        async def aclose(self) -> None:
            await self._source.close()

    return SyncSourceBody, AsyncSourceBody


@functools.cache
def _response_class(name: str) -> Any:
    """Return the class of a response, of httpx or httpx2."""
    library: Any = sys.modules[name]

    class LiveResponse(library.Response):  # type: ignore[misc]
        def __init__(self, original: Any, source: BodySource, limits: ResponseLimits, body: Any) -> None:
            self._original, self._source, self._limits = original, source, limits
            super().__init__(
                original.status_code,
                headers=original.headers,
                request=original.request,
                extensions=original.extensions,
                history=original.history,
                default_encoding=original.default_encoding,
                stream=body,
            )
            self.next_request = original.next_request

        @property
        def is_closed(self) -> bool:
            return self._is_closed or self._source.closed

        @is_closed.setter
        def is_closed(self, value: bool) -> None:
            self._is_closed = value

        @property
        def elapsed(self) -> timedelta:
            found: timedelta = self._original.elapsed
            return found

        def keep(self, content: bytes) -> bytes:
            """Store and return the body, which was read in another way."""
            self._content = content
            return content

        def read(self) -> bytes:
            if not hasattr(self, "_content"):
                reader = BodyReader(self._limits, None)
                for piece in self.iter_raw():
                    reader.add(piece, None)
                self._content = reader.content()
            return self._content

        async def aread(self) -> bytes:
            if not hasattr(self, "_content"):
                reader = BodyReader(self._limits, None)
                async for piece in self.aiter_raw():
                    reader.add(piece, None)
                self._content = reader.content()
            return self._content

        def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
            # The pieces are decompressed already, so the content-encoding header must be ignored.
            kept = hasattr(self, "_content")
            yield from super().iter_bytes(chunk_size) if kept else self.iter_raw(chunk_size)

        async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
            kept = hasattr(self, "_content")
            async for piece in super().aiter_bytes(chunk_size) if kept else self.aiter_raw(chunk_size):
                yield piece

    return LiveResponse


def captured_pieces(http: Any, read_on: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the bytes from which the events of a stream are decoded.

    Args:
        http: the stream of events, which has them as ``captured``.
        read_on: reads the next events, which captures their bytes; returns whether there were any.
    """
    more = True
    while more:
        more = read_on()
        yield from taken(http)


async def captured_pieces_async(http: Any, read_on: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """Yield the same as :func:`captured_pieces`, asynchronously."""
    more = True
    while more:
        more = await read_on()
        for piece in taken(http):
            yield piece


def taken(http: Any) -> Iterator[bytes]:
    """Remove and yield the captured bytes."""
    captured: deque[bytes] | None = http.captured
    while captured:
        yield captured.popleft()
