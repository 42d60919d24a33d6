"""Numbers of bytes in a suitable unit."""

from __future__ import annotations


def size_of(size: int) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit, many in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= many:
            return f"{size / many:.1f} {unit}"
    return f"{size} B"
