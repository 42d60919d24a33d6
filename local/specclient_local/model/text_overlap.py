"""Turn two texts into how much of the one's end may be the beginning of the other."""

from __future__ import annotations


def partial_match_length(text: str, other: str) -> int:
    """Return the length of the longest end of ``text`` that begins ``other``, the whole excluded."""
    longest = min(len(text), len(other) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(other[:n])), 0)
