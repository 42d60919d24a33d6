"""A body that arrives in parts, in pieces of one size or in lines, whatever the parts are."""

from __future__ import annotations

from collections.abc import Iterator


class PieceCutter:
    """Splits bytes into pieces of one size; with a size of None, pieces are left unchanged."""

    def __init__(self, size: int | None) -> None:
        self._size = size
        self._held = b""

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Add bytes, and yield the pieces that are whole."""
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
        """Yield the last piece, which may be shorter."""
        if self._held:
            yield self._held


class LineSplitter:
    """Splits text into lines, as :meth:`str.splitlines` does."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> Iterator[str]:
        """Add text, and yield the lines that are whole."""
        text = self._held + text
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1  # a CR at the end may be half of a CRLF
        self._held = text[cut:]
        yield from text[:cut].splitlines()

    def rest(self) -> Iterator[str]:
        """Yield the last lines, of which the last may have no end."""
        yield from self._held.splitlines()
