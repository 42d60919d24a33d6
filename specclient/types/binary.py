"""Responses whose body is a file: readable as bytes or text, or written to a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from specclient.runtime.forks import import_lock
from specclient.runtime.official_classes import SeenAsOfficial

T = TypeVar("T")


class HttpxBinaryResponseContent(SeenAsOfficial):
    """The result of a method whose response is a file.

    The body is completely read when the method returns; to receive it in pieces, make the call with
    ``with_streaming_response``.

    Args:
        response: the HTTP library's response.
    """

    official_name = "_legacy_response.HttpxBinaryResponseContent"

    def __init__(self, response: Any) -> None:
        self.response = response

    @property
    def content(self) -> bytes:
        """The body."""
        content: bytes = self.response.content
        return content

    @property
    def text(self) -> str:
        """The body as text, decoded with :attr:`encoding`."""
        text: str = self.response.text
        return text

    @property
    def encoding(self) -> str | None:
        """The encoding of :attr:`text`."""
        encoding: str | None = self.response.encoding
        return encoding

    @property
    def charset_encoding(self) -> str | None:
        """The encoding in the response headers."""
        encoding: str | None = self.response.charset_encoding
        return encoding

    def json(self, **kwargs: Any) -> Any:
        """Return the body as decoded JSON; ``kwargs`` are passed to :func:`json.loads`."""
        return self.response.json(**kwargs)

    def read(self) -> bytes:
        """Return the body."""
        return self.content

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Iterate over the body in pieces of ``chunk_size`` bytes; None for one piece."""
        return iter(self.response.iter_bytes(chunk_size))

    def iter_text(self, chunk_size: int | None = None) -> Iterator[str]:
        """Iterate over :attr:`text` in pieces of ``chunk_size`` characters."""
        return iter(self.response.iter_text(chunk_size))

    def iter_lines(self) -> Iterator[str]:
        """Iterate over the lines of :attr:`text`."""
        return iter(self.response.iter_lines())

    def iter_raw(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Iterate over the body; it is already decompressed."""
        return self.iter_bytes(chunk_size)

    def write_to_file(self, file: str | os.PathLike[str]) -> None:
        """Write the body to a file; an existing file is overwritten."""
        Path(file).write_bytes(self.content)

    def stream_to_file(self, file: str | os.PathLike[str], *, chunk_size: int | None = None) -> None:
        """Write the body to a file in pieces of ``chunk_size`` bytes."""
        with Path(file).open("wb") as opened:
            for piece in self.iter_bytes(chunk_size):
                opened.write(piece)

    def close(self) -> None:
        """Do nothing: the connection was released after the body was read."""

    async def aread(self) -> bytes:
        """Return the body."""
        return self.content

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        """Return an iterator over the body in pieces of ``chunk_size`` bytes."""
        return _each(self.iter_bytes(chunk_size))

    async def aiter_text(self, chunk_size: int | None = None) -> AsyncIterator[str]:
        """Return an iterator over :attr:`text` in pieces of ``chunk_size`` characters."""
        return _each(self.iter_text(chunk_size))

    async def aiter_lines(self) -> AsyncIterator[str]:
        """Return an iterator over the lines of :attr:`text`."""
        return _each(self.iter_lines())

    async def aiter_raw(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        """Return an iterator over the body; it is already decompressed."""
        return _each(self.iter_bytes(chunk_size))

    async def astream_to_file(self, file: str | os.PathLike[str], *, chunk_size: int | None = None) -> None:
        """Write the body to a file in pieces of ``chunk_size`` bytes."""
        with import_lock:
            import anyio  # noqa: PLC0415 - needed only to write files

        async with await anyio.open_file(file, "wb") as opened:
            for piece in self.iter_bytes(chunk_size):
                await opened.write(piece)

    async def aclose(self) -> None:
        """Do nothing: the connection was released after the body was read."""


async def _each(pieces: Iterator[T]) -> AsyncIterator[T]:
    for piece in pieces:
        yield piece
