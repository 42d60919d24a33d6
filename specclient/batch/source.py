"""Turn a file, a pipe or an iterable into numbered lines, one at a time."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from specclient.errors import ConfigurationError

#: The longest line that is read, in bytes; a longer one is no request that any server would take.
MAX_LINE_BYTES = 64 * 2**20
_WAITING = 64
_BOM = b"\xef\xbb\xbf"

RawLine = bytes | str | Mapping[str, Any]


@runtime_checkable
class BinaryStream(Protocol):
    """A binary stream."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or as much of it as ``size`` bytes; empty at the end."""
        ...


BatchSource = str | Path | BinaryStream | Iterable[RawLine] | AsyncIterable[RawLine]


class NumberedLine(NamedTuple):
    """A line as it came, its number from 1, and the bytes that were read up to its end."""

    number: int
    raw: RawLine
    end: int


async def numbered_lines(source: BatchSource) -> AsyncGenerator[NumberedLine, None]:
    """Yield the lines of a source. Blank ones count, but for those at the end, which nobody meant.

    Args:
        source: a file's path, a binary stream (read in a thread, as it may wait), or lines: bytes, text, or
            mappings, from an iterable of either kind.

    Raises:
        ConfigurationError: a file that cannot be read.
    """
    blank: list[NumberedLine] = []
    number = end = 0
    async with aclosing(_pieces(source)) as pieces:
        async for raw in pieces:
            number += 1
            end += 0 if isinstance(raw, Mapping) else len(raw)
            if not isinstance(raw, Mapping) and len(raw) < 1024 and not raw.strip():
                blank.append(NumberedLine(number, raw, end))
                del blank[_WAITING:]  # a file of nothing else is no reason to run out of memory
                continue
            for each in blank:
                yield each
            blank.clear()
            yield NumberedLine(number, raw, end)


async def _pieces(source: BatchSource) -> AsyncGenerator[RawLine, None]:
    if isinstance(source, str | Path):
        try:
            with Path(source).open("rb") as file:  # noqa: ASYNC230 - a local file answers at once
                first = True
                while piece := _line(file):
                    yield piece.removeprefix(_BOM) if first else piece
                    first = False
        except OSError as error:
            raise ConfigurationError(f"cannot read {source}: {error.strerror or error}") from None
    elif isinstance(source, BinaryStream):
        async with aclosing(_pumped(source)) as pumped:
            async for piece in pumped:
                yield piece
    elif isinstance(source, AsyncIterable):
        async for each in source:
            yield each
    else:
        for each in source:
            yield each


def _line(file: BinaryStream | BinaryIO) -> bytes:
    """Return a line; of one that is too long, its beginning, which is no JSON."""
    piece = file.readline(MAX_LINE_BYTES)
    last = piece
    while len(last) == MAX_LINE_BYTES and not last.endswith(b"\n"):
        last = file.readline(MAX_LINE_BYTES)
    return piece


async def _pumped(source: BinaryStream) -> AsyncGenerator[bytes, None]:
    """Yield a stream's lines, read in a thread that is a little ahead and never keeps the program alive."""
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
        except BaseException as error:  # noqa: BLE001 - raised where the lines are read
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
