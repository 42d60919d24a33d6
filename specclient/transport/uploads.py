"""Turn a request's files into whether a second try can send the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def can_send_again(files: Iterable[tuple[str, Any]]) -> bool:
    """Tell whether every file can be read once more; the HTTP library itself goes back to its start.

    Args:
        files: as in :class:`specclient.types.wire.WireRequest`.
    """
    return all(_can_read_again(file[1] if isinstance(file, tuple) else file) for _, file in files)


def _can_read_again(content: Any) -> bool:
    if isinstance(content, bytes | bytearray | str):
        return True
    try:
        return bool(content.seekable())
    except (AttributeError, OSError, ValueError):  # an iterator, a pipe, a file closed meanwhile
        return False
