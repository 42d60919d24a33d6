"""Turn the HTTP behind an answer into what ``with_raw_response`` and ``with_streaming_response`` give."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from specclient.call.stream import AsyncStream, Stream
from specclient.errors import OpenAIError
from specclient.types.base import WireModel

T = TypeVar("T")

#: Of a request: how many tries came before it.
RETRY_COUNT_HEADER = "x-stainless-retry-count"


class ResponseHead:
    """The head of a response: status, headers, where it came from.

    Args:
        response: the HTTP library's; None where an engine in this process answered.
    """

    def __init__(self, response: Any) -> None:
        self.http_response = response

    @property
    def retries_taken(self) -> int:
        """Tries before the one that was answered."""
        count = "0" if self.http_response is None else self.http_request.headers.get(RETRY_COUNT_HEADER, "0")
        return int(count) if count.isdecimal() else 0

    @property
    def headers(self) -> Any:
        """Its headers; names in any case."""
        return {} if self.http_response is None else self.http_response.headers

    @property
    def http_request(self) -> Any:
        """The request as it was sent."""
        return self.http_response.request

    @property
    def status_code(self) -> int:
        """Its status."""
        return 200 if self.http_response is None else int(self.http_response.status_code)

    @property
    def url(self) -> Any:
        """Where it came from."""
        return self.http_response.url

    @property
    def method(self) -> str:
        """The verb that was sent."""
        return str(self.http_request.method)

    @property
    def http_version(self) -> str:
        """As ``HTTP/1.1``."""
        return str(self.http_response.http_version)

    @property
    def elapsed(self) -> timedelta:
        """From sending to the end of the body; known once the body has been read."""
        elapsed: timedelta = self.http_response.elapsed
        return elapsed

    @property
    def is_closed(self) -> bool:
        """Whether its connection has been given back."""
        return self.http_response is None or bool(self.http_response.is_closed)

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request."""
        found: str | None = self.headers.get("x-request-id") or self.headers.get("request-id")
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self.status_code}]>"

    def _text(self, content: bytes) -> str:
        encoding = None if self.http_response is None else self.http_response.charset_encoding
        return content.decode(encoding or "utf-8", "replace")

    def _noted(self, value: Any) -> Any:
        """Return an answer, which knows the id of its request."""
        if isinstance(value, WireModel):
            value.attach_request_id(self.request_id)
        return value

    def _is_whole(self, to: Any) -> bool:
        """Tell whether a body is asked for as the HTTP library's own response."""
        return isinstance(to, type) and to.__name__ == "Response" and to.__module__.startswith("httpx")


class RawResponse(ResponseHead, Generic[T]):
    """A whole answer, as HTTP and parsed; of a streamed call, the stream is what :meth:`parse` gives.

    Args:
        response: the HTTP library's.
        content: the body; None for a stream.
        parse: returns the answer, or the answer as another type.
    """

    def __init__(self, response: Any, content: bytes | None, parse: Callable[[Any], T]) -> None:
        super().__init__(response)
        self._content = content
        self._parse = parse
        self._parsed: dict[Any, Any] = {}

    def parse(self, *, to: Any = None) -> Any:
        """Return the answer as the method would have; ``to`` names another type to read the body as.

        Raises:
            APIResponseValidationError: for a body that is no such answer.
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


class _UnreadResponse(ResponseHead):
    """A response whose body can be read once; whole, it is kept."""

    def __init__(self, body: Any) -> None:
        super().__init__(body.response)
        self._body = body
        self._read: bytes | None = None
        self._state = ""

    def _unread(self) -> Any:
        """Return the body, this one time.

        Raises:
            OpenAIError: where it has been iterated over, or closed.
        """
        if self._state:
            raise OpenAIError(
                f"the body of this response has been {self._state}, and cannot be read any more; "
                "read() it first, which keeps it"
            )
        self._state = "iterated over"
        return self._body


class StreamedResponse(_UnreadResponse):
    """A response whose body is read when it is asked for; synchronous."""

    def __init__(self, body: Stream[bytes], parse: Callable[[bytes, Any], Any], events: Any) -> None:
        super().__init__(body)
        self._parse = parse
        self._events = events

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Iterate over the body, in pieces as they come or of ``chunk_size`` bytes."""
        sized = _PieceCutter(chunk_size)
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
        """Iterate over the lines of the body, without their ends."""
        lines = _LineSplitter()
        for text in self.iter_text():
            yield from lines.add(text)
        yield from lines.rest()

    def read(self) -> bytes:
        """Return the whole body."""
        if self._read is None:
            self._read = b"".join(self._unread())
        return self._read

    def text(self) -> str:
        """Return the whole body as text."""
        return self._text(self.read())

    def json(self) -> Any:
        """Return the whole body as decoded JSON."""
        return json.loads(self.read())

    def parse(self, *, to: Any = None) -> Any:
        """Return the answer as the method would have; of a streamed call, the stream."""
        if self._events is not None and to is None:
            return self._events(self._unread())
        content = self.read()
        if to is bytes or self._is_whole(to):
            return content if to is bytes else self.http_response
        return self._noted(self._parse(content, to))

    def stream_to_file(self, file: str | Path, *, chunk_size: int | None = None) -> None:
        """Write the body to a file as it comes."""
        with Path(file).open("wb") as out:
            for piece in self.iter_bytes(chunk_size):
                out.write(piece)

    def close(self) -> None:
        """Free the connection."""
        self._state = self._state or "closed"
        self._body.close()


class AsyncStreamedResponse(_UnreadResponse):
    """A response whose body is read when it is asked for; asynchronous."""

    def __init__(self, body: AsyncStream[bytes], parse: Callable[[bytes, Any], Any], events: Any) -> None:
        super().__init__(body)
        self._parse = parse
        self._events = events

    async def iter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        """Iterate over the body, in pieces as they come or of ``chunk_size`` bytes."""
        sized = _PieceCutter(chunk_size)
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
        """Iterate over the lines of the body, without their ends."""
        lines = _LineSplitter()
        async for text in self.iter_text():
            for line in lines.add(text):
                yield line
        for line in lines.rest():
            yield line

    async def read(self) -> bytes:
        """Return the whole body."""
        if self._read is None:
            self._read = b"".join([piece async for piece in self._unread()])
        return self._read

    async def text(self) -> str:
        """Return the whole body as text."""
        return self._text(await self.read())

    async def json(self) -> Any:
        """Return the whole body as decoded JSON."""
        return json.loads(await self.read())

    async def parse(self, *, to: Any = None) -> Any:
        """Return the answer as the method would have; of a streamed call, the stream."""
        if self._events is not None and to is None:
            return self._events(self._unread())
        content = await self.read()
        if to is bytes or self._is_whole(to):
            return content if to is bytes else self.http_response
        return self._noted(self._parse(content, to))

    async def stream_to_file(self, file: str | Path, *, chunk_size: int | None = None) -> None:
        """Write the body to a file as it comes."""
        with Path(file).open("wb") as out:  # noqa: ASYNC230 - as fast as a thread's hop for each piece
            async for piece in self.iter_bytes(chunk_size):
                out.write(piece)

    async def close(self) -> None:
        """Free the connection."""
        self._state = self._state or "closed"
        await self._body.close()


class _PieceCutter:
    """Cuts what is added into pieces of one size; of none, leaves them as they are."""

    def __init__(self, size: int | None) -> None:
        self._size = size
        self._held = b""

    def add(self, piece: bytes) -> Iterator[bytes]:
        if self._size is None:
            if piece:
                yield piece
            return
        held, at, size = self._held + piece, 0, self._size
        while len(held) - at >= size:
            yield held[at : at + size]
            at += size
        self._held = held[at:]

    def rest(self) -> Iterator[bytes]:
        if self._held:
            yield self._held


class _LineSplitter:
    """Cuts what is added into lines, as :meth:`str.splitlines` does."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> Iterator[str]:
        text = self._held + text
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1  # a last CR may be half of a CRLF
        self._held = text[cut:]
        yield from text[:cut].splitlines()

    def rest(self) -> Iterator[str]:
        yield from self._held.splitlines()
