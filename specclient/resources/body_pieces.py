"""A body that arrives in parts, in pieces of one size or in lines, whatever the parts are."""

from __future__ import annotations

from collections.abc import Iterator

from specclient.http_transport.body_limits import response_too_large


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
    """Splits text into lines, as :meth:`str.splitlines` does.

    Args:
        max_line_bytes: the bytes, in UTF-8, of the longest line whose end is waited for.
    """

    def __init__(self, max_line_bytes: float) -> None:
        self._max_line_bytes = max_line_bytes
        self._held: list[str] = []
        self._size = 0

    def add(self, text: str) -> Iterator[str]:
        """Add text, and yield the lines that are whole.

        Raises:
            ResponseTooLargeError: the line that has begun is longer than allowed.
        """
        if not text:
            return
        if self._held and self._held[-1].endswith("\r"):
            text = self._held.pop() + text
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1  # a CR at the end may be half of a CRLF
        if cut:
            whole = "".join((*self._held, text[:cut]))
            self._held, self._size = [], 0
            yield from whole.splitlines()
        if cut < len(text):
            self._held.append(text[cut:])
            self._size += len(text[cut:].encode())
            if self._size > self._max_line_bytes:
                raise response_too_large(
                    "A line of the response is longer than allowed",
                    "max_event_bytes",
                    self._max_line_bytes,
                    self._size,
                )

    def rest(self) -> Iterator[str]:
        """Yield the last lines, of which the last may have no end."""
        yield from "".join(self._held).splitlines()
