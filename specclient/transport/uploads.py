"""Turn a request's files into what a second try sends: the same bytes, or nothing where they are gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class Uploads:
    """The files of one request, and where each stood before the first try read it.

    Args:
        files: as in :class:`specclient.types.wire.WireRequest`.
    """

    def __init__(self, files: Sequence[tuple[str, Any]] | None) -> None:
        self._starts: list[tuple[Any, int]] = []
        self._lasting = True
        for content in _contents(files):
            start = _position(content)
            if start is None:
                self._lasting = False
            else:
                self._starts.append((content, start))

    def rewind(self) -> bool:
        """Put every file back to where it stood; False where one cannot be read a second time."""
        if not self._lasting:
            return False
        try:
            for content, start in self._starts:
                content.seek(start)
        except (OSError, ValueError):  # ValueError: closed meanwhile
            return False
        return True


def _contents(files: Sequence[tuple[str, Any]] | None) -> Iterator[Any]:
    for _, file in files or ():
        content = file[1] if isinstance(file, tuple) else file
        if not isinstance(content, bytes | bytearray | str):
            yield content


def _position(content: Any) -> int | None:
    """Return where a file stands, None where it cannot be put back there."""
    try:
        return int(content.tell()) if content.seekable() else None
    except (AttributeError, OSError, ValueError):  # an iterator, a pipe, a closed file
        return None
