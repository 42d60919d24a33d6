"""Request bodies from files and iterables, read as they are sent, and again for a retry if possible."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from specclient.http_transport import lazy_httpx as httpx
from specclient.runtime.forks import import_lock
from specclient.types.wire import WireRequest

_CHUNK_BYTES = 65_536
_NEVER_BLOCKING = (io.BytesIO, list, tuple)


class Upload:
    """A file, iterable or async iterable that is read while it is sent, each time from its first position.

    It belongs to the user and is never closed here. Iterate over this object with ``async for``, or over
    :attr:`pieces`. HTTP libraries iterate again when they follow a redirect.

    Attributes:
        is_async: whether the source is an async iterable.
        length: the bytes from the first position to the end; None if unknown before reading.
        once: whether it can be read only once.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._start = _position(source)
        self._begun = False
        self.is_async = hasattr(source, "__aiter__") and not hasattr(source, "__iter__")
        self.length = None if self._start is None else _end(source) - self._start
        if hasattr(source, "read"):
            self.once = self._start is None
        else:
            iterate: Callable[[Any], Any] = aiter if self.is_async else iter
            self.once = iterate(source) is source

    @property
    def headers(self) -> dict[str, str]:
        """The header with the body's length. Without a length the HTTP library sends it in chunks."""
        return {} if self.length is None else {"content-length": str(self.length)}

    @property
    def can_send_again(self) -> bool:
        """Whether it can be read again: it is neither an iterator nor a pipe, and is not closed."""
        return not self.once and (self._start is None or _position(self._source) is not None)

    @property
    def pieces(self) -> Iterable[bytes] | Upload:
        """The chunks for a sync client; for an async iterable this object, which the client refuses."""
        return self if self.is_async else _ReplayableIterable(self._read)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield its chunks. Reads that may block run in a worker thread.

        Raises:
            httpx.StreamConsumed: it can be read only once, and has been read.
        """
        if self.is_async:
            self._rewind()
            async for piece in self._source:
                yield piece
            return
        pieces = self._read()
        if isinstance(self._source, _NEVER_BLOCKING):
            for piece in pieces:
                yield piece
            return
        with import_lock:
            import anyio.to_thread  # noqa: PLC0415 - only needed for uploads

        while piece := await anyio.to_thread.run_sync(_next, pieces, limiter=anyio.CapacityLimiter(1)):
            if piece[0]:
                yield piece[0]

    def _read(self) -> Iterator[bytes]:
        self._rewind()
        if not hasattr(self._source, "read"):
            yield from self._source
            return
        left = self.length
        while left != 0 and (
            piece := self._source.read(_CHUNK_BYTES if left is None else min(_CHUNK_BYTES, left))
        ):
            left = None if left is None else left - len(piece)
            yield piece

    def _rewind(self) -> None:
        if self.once and self._begun:
            raise httpx.StreamConsumed
        self._begun = True
        if self._start is not None:
            self._source.seek(self._start)


@dataclass(frozen=True)
class _ReplayableIterable:
    """An iterable with a new iterator for each iteration."""

    begin: Callable[[], Iterator[bytes]]  # not called `read`, by which httpx recognizes files

    def __iter__(self) -> Iterator[bytes]:
        return self.begin()


def body_of(content: Any) -> bytes | Upload | None:
    """Return a body in the form that the transport sends.

    Raises:
        TypeError: it is neither bytes, text, a binary file nor an iterable of bytes.
    """
    if content is None or isinstance(content, bytes | Upload):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    if isinstance(content, dict) or not any(
        hasattr(content, name) for name in ("read", "__iter__", "__aiter__")
    ):
        raise TypeError(
            f"content is a {type(content).__name__}; it must be bytes, text, a binary file, or an iterable "
            "or async iterable of bytes"
        )
    return Upload(content)


def can_send_again(request: WireRequest) -> bool:
    """Return whether body and files can be read again. The HTTP library rewinds files."""
    content: Any = request.content
    if isinstance(content, Upload) and not content.can_send_again:
        return False
    files = request.files or ()
    return all(_can_read_again(file[1] if isinstance(file, tuple) else file) for _, file in files)


def _can_read_again(content: Any) -> bool:
    return isinstance(content, bytes | bytearray | str) or _position(content) is not None


def _position(file: Any) -> int | None:
    """Return a file's position, or None if it cannot seek: an iterator, a pipe, a closed file."""
    try:
        return int(file.tell()) if file.seekable() else None
    except (AttributeError, OSError, ValueError):
        return None


def _end(file: Any) -> int:
    here = file.tell()
    end = int(file.seek(0, os.SEEK_END))
    file.seek(here)
    return end


def _next(pieces: Iterator[bytes]) -> tuple[bytes] | None:
    """Return the next chunk in a tuple, or None at the end: StopIteration cannot cross threads."""
    for piece in pieces:
        return (piece,)
    return None
