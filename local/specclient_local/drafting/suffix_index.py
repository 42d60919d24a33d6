"""An index of tokens that finds earlier occurrences of the end of a context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

RUN_SIZES = (4, 2, 1)
"""Lengths of the runs of tokens whose positions an index keeps; the longest run that occurs is used."""

LONGEST_MATCH = 16
"""Maximum length of a match, in tokens."""

_NEIGHBOURS = 8
"""Number of positions that a search compares on either side of the expected one."""


class SuffixIndex:
    """Finds the longest suffix of a context among the indexed tokens, in time that does not grow with them.

    Hash tables keep the positions after each run of four, two and one tokens. Only the positions of a run
    nearest to the expected one are compared, so a search costs a few lookups and bisections; adding a token
    costs three entries.

    Args:
        tokens: initial tokens; more may be appended.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self._behind: dict[tuple[int, ...], list[int]] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Append a token."""
        self.tokens.append(token)
        behind = len(self.tokens)
        for size in RUN_SIZES:
            if behind >= size:
                self._behind.setdefault(tuple(self.tokens[behind - size :]), []).append(behind)

    def find(self, context: Sequence[int], near: int) -> tuple[int, int] | None:
        """Return the position after the best match of the context's end, and the match's length; None if
        none matches.

        Args:
            context: recent tokens; at most the last ``LONGEST_MATCH`` are compared.
            near: expected position. Of equally long matches the nearest wins, of two equally near ones the
                later.
        """
        for size in RUN_SIZES:
            places = self._behind.get(tuple(context[-size:])) if len(context) >= size else None
            if places:
                middle = bisect_left(places, near)
                close = places[max(0, middle - _NEIGHBOURS) : middle + _NEIGHBOURS]
                matched, _, place = max(
                    (self._matching(context, place), -abs(place - near), place) for place in close
                )
                return place, matched
        return None

    def _matching(self, context: Sequence[int], place: int) -> int:
        """Return how many tokens before ``place`` equal the context's last ones."""
        most = min(place, len(context), LONGEST_MATCH)
        return next((n for n in range(most) if self.tokens[place - 1 - n] != context[-1 - n]), most)
