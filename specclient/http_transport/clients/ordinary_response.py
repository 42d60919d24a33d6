"""Ordinary responses and their bodies, read without aiohttp's parser.

aiohttp's parser and its body take a sixth of the processor time of a short answer, and split the body of a
stream at each chunk of its transfer encoding. A response is ordinary if its head comes in one piece and has
plain names, a single length or the chunked encoding, no compression, and a connection that stays open. All
others are left to aiohttp from their first byte, so that what is odd is read as before. Heads are parsed in
:mod:`.ordinary_head`.

Imported only when aiohttp does the I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, Self

import aiohttp
from aiohttp.http_exceptions import ContentLengthError, TransferEncodingError

from specclient.http_transport.clients.ordinary_head import LINE_END, MOST_DIGITS

__all__ = ["OrdinaryBody"]

#: Longest line with the size of a chunk, and most bytes of trailers; more are an error.
_MOST_SIZE_LINE, _MOST_TRAILERS = 1024, 16 * 2**10
_HEXADECIMAL = b"0123456789abcdefABCDEF"
#: Bytes of a body that are held for a slow reader before the server has to wait.
_MOST_HELD = 512 * 2**10


class BodyConnection(Protocol):
    """The connection of a body."""

    def hold(self) -> None:
        """Read no further bytes from the server for now."""
        ...

    def go_on(self) -> None:
        """Read on."""
        ...

    def force_close(self) -> None:
        """Close the connection once the response ends."""
        ...


class OrdinaryBody:
    """The body of an ordinary response; it has the members of ``aiohttp.StreamReader`` that are used.

    Args:
        connection: where it is read from.
        length: its bytes; None for the chunked encoding.

    Attributes:
        length: as given.
    """

    __slots__ = (
        "_connection",
        "_ends_chunk",
        "_eof",
        "_exception",
        "_held",
        "_missing",
        "_on_eof",
        "_pieces",
        "_rest",
        "_size",
        "_waiter",
        "length",
    )

    #: As of aiohttp's body: None, as the body is not compressed.
    total_compressed_bytes = None

    def __init__(self, connection: BodyConnection, length: int | None) -> None:
        self._connection = connection
        self.length = length
        self._missing = length or 0  # bytes of the body, or of the current chunk
        self._ends_chunk = False  # whether the line end after a chunk comes next
        self._rest = b""  # the beginning of a line about a chunk
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces
        self._held = False
        self._eof = False
        self._exception: BaseException | None = None
        self._on_eof: list[Callable[[], None]] = []
        self._waiter: asyncio.Future[None] | None = None

    # For the reader

    def exception(self) -> BaseException | None:
        """Return what has broken the body off."""
        return self._exception

    def is_eof(self) -> bool:
        """Return whether all of it has been received."""
        return self._eof

    def on_eof(self, callback: Callable[[], None]) -> None:
        """Call a function when all of it has been received."""
        if self._eof:
            callback()
        else:
            self._on_eof.append(callback)

    async def readany(self) -> bytes:
        """Return the bytes received since the last call, at least one; none at the end."""
        if self._exception is not None:
            raise self._exception
        while not self._pieces and not self._eof:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.read_nowait()

    def read_nowait(self) -> bytes:
        """Return the bytes received since the last call."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        if self._held:
            self._held = False
            self._connection.go_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self) -> bytes:
        """Return the rest of the body."""
        return b"".join([piece async for piece in self])

    def iter_any(self) -> Self:
        """Return an iterator over the bytes as they are received."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.readany()
        if not piece:
            raise StopAsyncIteration
        return piece

    # For the connection

    def feed(self, data: bytes) -> None:
        """Add received bytes.

        Raises:
            TransferEncodingError: the framing of the chunks is invalid.
        """
        before = len(self._pieces)
        if self.length is None:
            self._feed_chunks(data)
        else:
            self._feed_part(data)
        if len(self._pieces) > before or self._eof:
            self._wake()
        if self._size > _MOST_HELD and not self._held and not self._eof:
            self._held = True
            self._connection.hold()

    def set_exception(self, exc: BaseException, cause: BaseException | None = None) -> None:
        """Raise an exception in the reader."""
        if cause is not None:
            exc.__cause__ = cause
        self._exception = exc
        self._on_eof.clear()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(exc)

    def incomplete(self) -> aiohttp.ClientPayloadError:
        """Return the error for a connection that ended before the body."""
        cause: Exception
        if self.length is None:
            cause = TransferEncodingError("Not enough data to satisfy transfer length header.")
        else:
            received = self.length - self._missing
            cause = ContentLengthError(
                f"Not enough data to satisfy content length header (received {received} of {self.length} "
                "bytes)."
            )
        return aiohttp.ClientPayloadError(f"Response payload is not completed: {cause!r}")

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def _feed_part(self, data: bytes) -> None:
        """Add bytes of a body with a length."""
        extra = len(data) - self._missing
        if extra > 0:
            data = data[: self._missing]
        if data:
            self._add(data)
            self._missing -= len(data)
        if not self._missing:
            self._end(clean=extra <= 0)

    def _feed_chunks(self, data: bytes) -> None:
        at = 0
        if self._missing:
            at = min(self._missing, len(data))
            self._add(data if at == len(data) else data[:at])
            self._missing -= at
            if self._missing:
                return
            self._ends_chunk = True
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self._ends_chunk:
            ending = data[at : at + 2]
            if not LINE_END.startswith(ending):
                raise TransferEncodingError("Missing line end after a chunk")
            if len(ending) < 2:
                self._rest = ending
                return
            self._ends_chunk = False
            at += 2
        self._take_chunks(data, at)

    def _take_chunks(self, data: bytes, at: int) -> None:
        """Add the chunks in ``data``, of which the first begins with its size at ``at``."""
        end, add = len(data), self._add
        while at < end:
            line_end = data.find(LINE_END, at, at + _MOST_SIZE_LINE)
            if line_end < 0:
                if end - at >= _MOST_SIZE_LINE:
                    raise TransferEncodingError("The size of a chunk is too long")
                self._rest = data[at:]
                return
            size = _chunk_size(data[at:line_end])
            if not size:
                self._take_trailers(data, at, line_end)
                return
            begin = line_end + 2
            at = begin + size
            if at >= end:
                if begin < end:
                    add(data[begin:])
                self._missing = at - end
                self._ends_chunk = at == end
                return
            add(data[begin:at])
            if data[at : at + 2] != LINE_END:
                if end - at >= 2 or data[at] != LINE_END[0]:
                    raise TransferEncodingError("Missing line end after a chunk")
                self._ends_chunk, self._rest = True, data[at:]
                return
            at += 2

    def _take_trailers(self, data: bytes, at: int, line_end: int) -> None:
        """Take the end of the body, whose last line begins at ``at``; the headers after it are dropped."""
        stop = data.find(b"\r\n\r\n", line_end)
        if stop >= 0:
            self._end(clean=stop == line_end and stop + 4 == len(data))
        elif len(data) - at > _MOST_TRAILERS:
            raise TransferEncodingError("The headers after the last chunk are too long")
        else:
            self._rest = data[at:]

    def _end(self, *, clean: bool) -> None:
        """End the body.

        Args:
            clean: whether the connection may be used again: nothing followed.
        """
        self._eof = True
        if not clean:
            self._connection.force_close()
        callbacks, self._on_eof = self._on_eof, []
        for callback in callbacks:
            callback()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _chunk_size(line: bytes) -> int:
    """Return the size of a chunk from its line, without its extensions (RFC 9112, section 7.1).

    Raises:
        TransferEncodingError: it is not a hexadecimal number.
    """
    if b";" in line:
        line = line.partition(b";")[0].rstrip(b" \t")
    if not 0 < len(line) <= MOST_DIGITS or line.translate(None, _HEXADECIMAL):
        raise TransferEncodingError(f"Invalid size of a chunk: {line[:20]!r}")
    return int(line, 16)
