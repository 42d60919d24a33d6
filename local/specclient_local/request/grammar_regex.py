"""Measures regular expressions: groups within each other, alternatives, repetitions."""

from __future__ import annotations

import re

from specclient_local.request.grammar_size import GrammarSize

_REGEX_TOKEN = re.compile(
    r"""(?P<skip>\\[pP]\{[^}]*+\}?|\\[xuU]\{[^}]*+\}?|\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?)"""
    r"""|(?P<open>\()|(?P<close>\))|(?P<bar>\|)|\{(?P<low>\d*+),?(?P<high>\d*+)\}"""
    r"""|(?P<text>[^\\\[(){|]++)""",
    re.DOTALL,
)


def measure_regex(text: str) -> GrammarSize:
    """Return the size of a regular expression."""
    levels = GrammarLevels()
    for match in _REGEX_TOKEN.finditer(text):
        levels.note(match)
    return GrammarSize(
        bytes=len(text.encode(errors="surrogatepass")),
        nesting=levels.nesting,
        alternatives=levels.alternatives,
        repetitions=levels.repetitions,
        weight=sum(map(text.count, "([{")),
    )


class GrammarLevels:
    """Counts groups within each other, the alternatives of each, and nested repetitions.

    Attributes:
        nesting, alternatives, repetitions: the greatest so far; see :class:`GrammarSize`.
    """

    def __init__(self) -> None:
        self.nesting = self.alternatives = self.repetitions = 0
        self._open: list[tuple[int, int]] = []  # bars and greatest repetition of the enclosing groups
        # Bars and greatest repetition so far in this group, and the repetition of the last item alone.
        self._bars, self._most, self._last = 0, 1, 1

    def note(self, match: re.Match[str]) -> None:
        """Note a token.

        Args:
            match: a token with the last group ``open``, ``close``, ``bar``, ``low`` or ``high``. Another
                group is an item; a token without a group has no meaning here.
        """
        kind = match.lastgroup
        if kind == "open":
            self.open()
        elif kind == "close":
            self.close()
        elif kind == "bar":
            self.bar()
        elif kind in ("low", "high"):
            self.repeat(match["low"], match["high"])
        elif kind is not None:
            self.item()

    def open(self) -> None:
        """Begin a group."""
        self._open.append((self._bars, self._most))
        self._bars, self._most, self._last = 0, 1, 1
        self.nesting = max(self.nesting, len(self._open))

    def close(self) -> None:
        """End a group; it is the item that a repetition count applies to."""
        if self._open:
            self._last = self._most
            self._bars, outer = self._open.pop()
            self._most = max(outer, self._last)

    def bar(self) -> None:
        """Begin another alternative."""
        self._bars += 1
        self.alternatives = max(self.alternatives, self._bars + 1)
        self._last = 1

    def item(self) -> None:
        """Note an item that is not a group."""
        self._last = 1

    def repeat(self, low: str, high: str) -> None:
        """Repeat the last item."""
        # A number of more than 18 digits exceeds every limit, and int() refuses thousands of digits.
        count = max((10**18 if len(text) > 18 else int(text) for text in (low, high) if text), default=0)
        self._last = min(self._last * max(count, 1), 2**63)
        self._most = max(self._most, self._last)
        self.repetitions = max(self.repetitions, self._most)

    def restart(self) -> None:
        """Begin a rule."""
        self._open.clear()
        self._bars, self._most, self._last = 0, 1, 1

    @property
    def depth(self) -> int:
        """The number of enclosing groups."""
        return len(self._open)
