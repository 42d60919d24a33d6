"""The response objects of ``with_raw_response`` and ``with_streaming_response``."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from specclient.call.stream import AsyncStream, Stream, attempts_of, limits_of
from specclient.errors import OpenAIError
from specclient.http_transport.body_limits import BodyReader
from specclient.resources.body_pieces import LineSplitter, PieceCutter
from specclient.resources.response_head import ResponseHead
from specclient.runtime.official_classes import SeenAsOfficial
from specclient.types.limit import ResponseLimits

T = TypeVar("T")
P = TypeVar("P")


class RawResponse(SeenAsOfficial, ResponseHead, Generic[T]):
    """An HTTP response with a method that parses it. For a streamed call, :meth:`parse` returns the stream.

    Args:
        response: the HTTP library's response.
        content: the body; None for a stream.
        parse: parses the body as a type; None as the type means the method's own result type.
        attempts: see :class:`ResponseHead`.
    """

    official_name = "_legacy_response.LegacyAPIResponse"

    def __init__(
        self, response: Any, content: bytes | None, parse: Callable[[Any], T], attempts: int = 1
    ) -> None:
        super().__init__(response, attempts)
        self._content = content
        self._parse = parse
        self._parsed: dict[Any, Any] = {}

    @overload
    def parse(self, *, to: type[P]) -> P: ...
    @overload
    def parse(self, *, to: None = None) -> T: ...
    def parse(self, *, to: Any = None) -> Any:
        """Return the result of the method, or the body parsed as the type ``to``.

        Raises:
            APIResponseValidationError: the body does not match the type.
        """
        if to is bytes:
            return self.content
        if self._is_whole(to):
            return self.http_response
        if to not in self._parsed:
            self._parsed[to] = self._noted(self._parse(to))
        return self._parsed[to]

    @property
    def content(self) -> bytes:
        """The body."""
        if self._content is None:
            raise RuntimeError("the body is a stream; iterate over .parse()")
        return self._content

    def read(self) -> bytes:
        """Return the body."""
        return self.content

    @property
    def text(self) -> str:
        """The body as text."""
        return self._text(self.content)

    def json(self) -> Any:
        """Return the body as decoded JSON."""
        return json.loads(self.content)


class _UnreadResponse(SeenAsOfficial, ResponseHead, Generic[T]):
    """A response whose body can be iterated over once; ``read()`` keeps the body for later use.

    Args:
        body: the bytes of the body, synchronous or asynchronous.
        limits: the limits on what is kept of it: the whole body, or a line.
    """

    def __init__(self, body: Any, limits: ResponseLimits) -> None:
        super().__init__(body.response, attempts_of(body))
        self._body, self._limits, self._state = body, limits, ""

    @property
    def _read(self) -> bytes | None:
        """The body, if it was read here or through the HTTP library's response."""
        found: bytes | None = getattr(self.http_response, "_content", None)
        return found

    def _unread(self) -> Any:
        """Return the body; works only once.

        Raises:
            OpenAIError: the body has been iterated over or closed.
        """
        if not self._state and getattr(self.http_response, "is_stream_consumed", False):
            self._state = "iterated over"
        if self._state:
            done = f"has been {self._state}, and cannot be read any more"
            raise OpenAIError(f"the body of this response {done}; read() it first, which keeps it")
        self._state = "iterated over"
        self.http_response.is_stream_consumed = True
        return self._body


class StreamedResponse(_UnreadResponse[T]):
    """A response whose body is read on demand; synchronous."""

    official_name = "_response.APIResponse"

    def __init__(self, body: Stream[bytes], parse: Callable[[bytes, Any], Any], events: Any) -> None:
        super().__init__(body, limits_of(body.async_stream()))
        self._parse = parse
        self._events = events

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Iterate over the body, in pieces of ``chunk_size`` bytes; None for pieces as received."""
        sized = PieceCutter(chunk_size)
        for piece in self._unread() if self._read is None else (self._read,):
            yield from sized.add(piece)
        yield from sized.rest()

    def iter_text(self, chunk_size: int | None = None) -> Iterator[str]:
        """Iterate over the body as text."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for piece in self.iter_bytes(chunk_size):
            if text := decode(piece):
                yield text

    def iter_lines(self) -> Iterator[str]:
        """Iterate over the lines of the body, without line endings.

        Raises:
            ResponseTooLargeError: a line has more than ``max_event_bytes``.
        """
        lines = LineSplitter(self._limits.max_event_bytes)
        for text in self.iter_text():
            yield from lines.add(text)
        yield from lines.rest()

    def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ResponseTooLargeError: it has more than ``max_body_bytes``.
        """
        if self._read is not None:
            return self._read
        reader = BodyReader(self._limits, None)
        for piece in self._unread():
            reader.add(piece, None)
        content: bytes = self.http_response.keep(reader.content())
        return content

    def text(self) -> str:
        """Return the whole body as text."""
        return self._text(self.read())

    def json(self) -> Any:
        """Return the whole body as decoded JSON."""
        return json.loads(self.read())

    @overload
    def parse(self, *, to: type[P]) -> P: ...
    @overload
    def parse(self, *, to: None = None) -> T: ...
    def parse(self, *, to: Any = None) -> Any:
        """Return the method's result (for a streamed call, the stream), or the body parsed as type ``to``."""
        if self._events is not None and to is None:
            return self._events(self._unread())
        content = self.read()
        if to is bytes or self._is_whole(to):
            return content if to is bytes else self.http_response
        return self._noted(self._parse(content, to))

    def stream_to_file(self, file: str | Path, *, chunk_size: int | None = None) -> None:
        """Write the body to a file as it is received."""
        with Path(file).open("wb") as out:
            for piece in self.iter_bytes(chunk_size):
                out.write(piece)

    def close(self) -> None:
        """Release the connection."""
        self._state = self._state or "closed"
        self._body.close()


class AsyncStreamedResponse(_UnreadResponse[T]):
    """A response whose body is read on demand; asynchronous."""

    official_name = "_response.AsyncAPIResponse"

    def __init__(self, body: AsyncStream[bytes], parse: Callable[[bytes, Any], Any], events: Any) -> None:
        super().__init__(body, limits_of(body))
        self._parse = parse
        self._events = events

    async def iter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        """Iterate over the body, in pieces of ``chunk_size`` bytes; None for pieces as received."""
        sized = PieceCutter(chunk_size)
        if self._read is not None:
            for part in sized.add(self._read):
                yield part
        else:
            async for piece in self._unread():
                for part in sized.add(piece):
                    yield part
        for part in sized.rest():
            yield part

    async def iter_text(self, chunk_size: int | None = None) -> AsyncIterator[str]:
        """Iterate over the body as text."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        async for piece in self.iter_bytes(chunk_size):
            if text := decode(piece):
                yield text

    async def iter_lines(self) -> AsyncIterator[str]:
        """Iterate over the lines of the body, without line endings.

        Raises:
            ResponseTooLargeError: a line has more than ``max_event_bytes``.
        """
        lines = LineSplitter(self._limits.max_event_bytes)
        async for text in self.iter_text():
            for line in lines.add(text):
                yield line
        for line in lines.rest():
            yield line

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ResponseTooLargeError: it has more than ``max_body_bytes``.
        """
        if self._read is not None:
            return self._read
        reader = BodyReader(self._limits, None)
        async for piece in self._unread():
            reader.add(piece, None)
        content: bytes = self.http_response.keep(reader.content())
        return content

    async def text(self) -> str:
        """Return the whole body as text."""
        return self._text(await self.read())

    async def json(self) -> Any:
        """Return the whole body as decoded JSON."""
        return json.loads(await self.read())

    @overload
    async def parse(self, *, to: type[P]) -> P: ...
    @overload
    async def parse(self, *, to: None = None) -> T: ...
    async def parse(self, *, to: Any = None) -> Any:
        """Return the method's result (for a streamed call, the stream), or the body parsed as type ``to``."""
        if self._events is not None and to is None:
            return self._events(self._unread())
        content = await self.read()
        if to is bytes or self._is_whole(to):
            return content if to is bytes else self.http_response
        return self._noted(self._parse(content, to))

    async def stream_to_file(self, file: str | Path, *, chunk_size: int | None = None) -> None:
        """Write the body to a file as it is received."""
        with Path(file).open("wb") as out:  # noqa: ASYNC230 - about as fast as switching to a thread for each piece
            async for piece in self.iter_bytes(chunk_size):
                out.write(piece)

    async def close(self) -> None:
        """Release the connection."""
        self._state = self._state or "closed"
        await self._body.close()
