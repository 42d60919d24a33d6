"""A suffix automaton of token sequences with counts: every run that occurs, how often, and what follows it.

Blumer et al., The smallest automaton recognizing the subwords of a text (1985). It has at most two states and
three transitions for each token, and appending a token takes amortised constant time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LONGEST_MATCH = 32
"""Maximum number of tokens at the end of a context that are matched."""

_MAX_COUNTED = 64
"""Most states whose count one token increases. Only texts that repeat one token have longer chains."""

_NONE = -1
_ROOT = 0


@dataclass(frozen=True, slots=True)
class SuffixMatch:
    """The longest end of a context that occurs with something after it.

    Attributes:
        state: its state in the automaton.
        length: its number of tokens; 0 if nothing follows even the last token.
    """

    state: int
    length: int


class SuffixAutomaton:
    """The runs of tokens that occur in some sequences.

    Most states have one transition, which is kept in arrays; a state with several has a dictionary as well.
    A token takes about 65 bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._link, self._length, self._count = array("i"), array("i"), array("i")
        self._token, self._target = array("i"), array("i")
        self._more: dict[int, dict[int, int]] = {}
        self._state(0)
        self._last = _ROOT

    def begin(self) -> None:
        """Begin another sequence: no run continues from the previous one."""
        self._last = _ROOT

    def append(self, token: int) -> None:
        """Append a token to the sequence."""
        self._last = self._extended(token)
        self.size += 1
        state, counted = self._last, 0
        while state > _ROOT and counted < _MAX_COUNTED:
            self._count[state] += 1
            state, counted = self._link[state], counted + 1

    def match(self, context: Sequence[int]) -> SuffixMatch:
        """Find the longest end of a context that something follows, of at most ``LONGEST_MATCH`` tokens."""
        state, length = _ROOT, 0
        for token in context[-LONGEST_MATCH:]:
            while (following := self._next(state, token)) == _NONE and state != _ROOT:
                state = self._link[state]
                length = self._length[state]
            if following != _NONE:
                state, length = following, length + 1
        while state != _ROOT and self._token[state] == _NONE:
            state = self._link[state]
            length = self._length[state]
        return SuffixMatch(state, length)

    def followers(self, state: int) -> list[tuple[float, int, int]]:
        """Return what follows a state's run: (share among the followers, token, state), most frequent first.

        The first of equal ones is the one that occurred first.
        """
        total = sum(self._count[to] for _, to in self._transitions(state))
        found = [(self._count[to] / total, token, to) for token, to in self._transitions(state)]
        return sorted(found, key=lambda follower: -follower[0])

    def _extended(self, token: int) -> int:
        """Return the state of the whole sequence with a token appended; adds it if it is new."""
        last = self._last
        known = self._next(last, token)
        if known != _NONE:
            return known if self._length[known] == self._length[last] + 1 else self._split(last, token, known)
        new = self._state(self._length[last] + 1)
        state = last
        while state != _NONE and (known := self._next(state, token)) == _NONE:
            self._set(state, token, new)
            state = self._link[state]
        if state == _NONE:
            self._link[new] = _ROOT
        elif self._length[known] == self._length[state] + 1:
            self._link[new] = known
        else:
            self._link[new] = self._split(state, token, known)
        return new

    def _split(self, state: int, token: int, known: int) -> int:
        """Divide the runs of a state: those as long as the transition to it get their own state."""
        clone = self._state(self._length[state] + 1)
        self._link[clone], self._count[clone] = self._link[known], self._count[known]
        self._token[clone], self._target[clone] = self._token[known], self._target[known]
        if known in self._more:
            self._more[clone] = dict(self._more[known])
        self._link[known] = clone
        while state != _NONE and self._next(state, token) == known:
            self._set(state, token, clone)
            state = self._link[state]
        return clone

    def _state(self, length: int) -> int:
        for column, value in (
            (self._link, _NONE),
            (self._length, length),
            (self._count, 0),
            (self._token, _NONE),
            (self._target, _NONE),
        ):
            column.append(value)
        return len(self._length) - 1

    def _next(self, state: int, token: int) -> int:
        if self._token[state] == token:
            return self._target[state]
        more = self._more.get(state)
        return _NONE if more is None else more.get(token, _NONE)

    def _set(self, state: int, token: int, target: int) -> None:
        if self._token[state] in (token, _NONE):
            self._token[state], self._target[state] = token, target
        else:
            self._more.setdefault(state, {})[token] = target

    def _transitions(self, state: int) -> Iterator[tuple[int, int]]:
        if self._token[state] != _NONE:
            yield self._token[state], self._target[state]
        yield from self._more.get(state, {}).items()


@dataclass(slots=True)
class AnswerRuns:
    """The latest answers, as two automata: the newer takes answers, and replaces the older when it is full.

    Attributes:
        limit: maximum number of tokens; at least half of that many of the latest ones are kept.
    """

    limit: int
    newer: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    older: SuffixAutomaton = field(default_factory=SuffixAutomaton)

    @property
    def size(self) -> int:
        """Number of tokens of both automata."""
        return self.newer.size + self.older.size

    def add(self, tokens: Sequence[int]) -> None:
        """Add an answer, or the end of one that is longer than half of the limit."""
        half = self.limit // 2
        kept = tokens[-half:] if half else []
        if self.newer.size + len(kept) > half:
            self.older, self.newer = self.newer, SuffixAutomaton()
        self.newer.begin()
        for token in kept:
            self.newer.append(token)
