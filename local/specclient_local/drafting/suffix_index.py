"""Turn a text's tokens into an index that finds where a continuation has been seen before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

_SIZES = (4, 2, 1)
_NEIGHBOURS = 8
LONGEST_CONTEXT = 16
"""Most tokens a match is followed back."""


class SuffixIndex:
    """Finds the longest end of some context within the tokens indexed, in time that does not grow with them.

    The places behind each run of four, two and one tokens are kept in hash tables. Of a run's places only
    the nearest to where the continuation is looked for are followed back, so a search costs a few
    look-ups and bisections, whatever the length; adding a token costs three entries.

    Args:
        tokens: to begin with; more may be appended.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self._behind: dict[tuple[int, ...], list[int]] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Add a token at the end."""
        self.tokens.append(token)
        behind = len(self.tokens)
        for size in _SIZES:
            if behind >= size:
                self._behind.setdefault(tuple(self.tokens[behind - size :]), []).append(behind)

    def find(self, context: Sequence[int], near: int) -> tuple[int, int] | None:
        """Return the place behind the best match of the context's end, and how many tokens match.

        Args:
            context: recent tokens; at most the last ``LONGEST_CONTEXT`` are compared.
            near: where the continuation is expected. Of equally long matches the nearest wins, and of
                two equally near the later.
        """
        for size in _SIZES:
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
        """Return how many tokens before ``place`` are those at the context's end."""
        most = min(place, len(context), LONGEST_CONTEXT)
        return next((n for n in range(most) if self.tokens[place - 1 - n] != context[-1 - n]), most)
