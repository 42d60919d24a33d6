"""The overlap between the end of one text and the beginning of another."""

from __future__ import annotations


def partial_match_length(text: str, other: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a proper prefix of ``other``."""
    longest = min(len(text), len(other) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(other[:n])), 0)
