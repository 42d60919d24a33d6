"""Reading of numbered lines from a file, a pipe or an iterable."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from specclient.errors import ConfigurationError

#: Maximum bytes of a line; no server accepts a longer request.
MAX_LINE_BYTES = 64 * 2**20
_WAITING = 64
_BOM = b"\xef\xbb\xbf"

RawLine = bytes | str | Mapping[str, Any]


@runtime_checkable
class BinaryStream(Protocol):
    """A binary stream."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, at most ``size`` bytes of it; empty at the end."""
        ...


BatchSource = str | Path | BinaryStream | Iterable[RawLine] | AsyncIterable[RawLine]


class NumberedLine(NamedTuple):
    """A raw line, its number from 1, and the number of bytes (of a text, characters) read up to its end."""

    number: int
    raw: RawLine
    end: int


async def numbered_lines(source: BatchSource) -> AsyncGenerator[NumberedLine, None]:
    """Yield the lines of a source. Blank lines are yielded, too, except those at the end.

    Args:
        source: a path, a binary stream (read in a thread, because it may block), or a sync or async
            iterable of bytes, strings or mappings.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    blank: list[NumberedLine] = []
    number = end = 0
    async with aclosing(_pieces(source)) as pieces:
        async for raw in pieces:
            number += 1
            end += 0 if isinstance(raw, Mapping) else len(raw)
            if not isinstance(raw, Mapping) and len(raw) < 1024 and not raw.strip():
                blank.append(NumberedLine(number, raw, end))
                del blank[_WAITING:]  # bounds the memory for a file of blank lines
                continue
            for each in blank:
                yield each
            blank.clear()
            yield NumberedLine(number, raw, end)


async def _pieces(source: BatchSource) -> AsyncGenerator[RawLine, None]:
    if isinstance(source, str | Path):
        try:
            with Path(source).open("rb") as file:  # noqa: ASYNC230 - a local file does not block for long
                first = True
                while piece := _line(file):
                    yield piece.removeprefix(_BOM) if first else piece
                    first = False
        except OSError as error:
            raise ConfigurationError(f"cannot read {source}: {error.strerror or error}") from None
    elif isinstance(source, BinaryStream):
        async with aclosing(_read_in_thread(source)) as lines:
            async for piece in lines:
                yield piece
    elif isinstance(source, AsyncIterable):
        async for each in source:
            yield each
    else:
        for each in source:
            yield each


def _line(file: BinaryStream | BinaryIO) -> bytes:
    """Return a line, or the start of a line that is too long, which is not valid JSON."""
    piece = file.readline(MAX_LINE_BYTES)
    last = piece
    while len(last) == MAX_LINE_BYTES and not last.endswith(b"\n"):
        last = file.readline(MAX_LINE_BYTES)
    return piece


async def _read_in_thread(source: BinaryStream) -> AsyncGenerator[bytes, None]:
    """Yield a stream's lines. A daemon thread reads a few lines ahead."""
    loop = asyncio.get_running_loop()
    lines: queue.Queue[bytes | BaseException] = queue.Queue(_WAITING)
    came, left = asyncio.Event(), threading.Event()

    def hand_over(item: bytes | BaseException) -> None:
        while not left.is_set():
            try:
                lines.put(item, timeout=0.2)
            except queue.Full:
                continue
            try:
                loop.call_soon_threadsafe(came.set)
            except RuntimeError:  # the loop has ended
                left.set()
            return

    def work() -> None:
        try:
            while (piece := _line(source)) and not left.is_set():
                hand_over(piece)
            hand_over(b"")
        except BaseException as error:  # noqa: BLE001 - raised in the reading coroutine
            hand_over(error)

    threading.Thread(target=work, name="specclient-batch-source", daemon=True).start()
    try:
        while True:
            came.clear()
            while not lines.empty():
                item = lines.get()
                if isinstance(item, BaseException):
                    raise item
                if not item:
                    return
                yield item
            await came.wait()
    finally:
        left.set()
