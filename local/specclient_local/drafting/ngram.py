"""N-gram lookup: finds an earlier occurrence of the last tokens, and drafts the tokens that followed it.

Prompt lookup (github.com/apoorvumang/prompt-lookup-decoding), over prompt and answer. The longest match is
used, the latest of equal ones. The number of copied tokens depends on the acceptance of matches of that
length in this request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specclient_local.drafting.drafter import Drafter, DrafterChosenChain, DraftShape
from specclient_local.drafting.suffix_index import LONGEST_MATCH, RUN_SIZES
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_MAX_CANDIDATES = 8
"""Maximum number of earlier occurrences that a search compares."""

_CLASSES = (2, 4, 8, 16)
"""Least lengths of the second and further classes of matches; each class has an acceptance of its own."""

_PRIOR = (0.4, 0.6, 0.75, 0.85, 0.97)
_WEIGHT = 4.0
"""Prior acceptance of each class, and the number of observations that it counts as."""

_DECAY = 0.97
"""Factor by which earlier observations of a class fade with each draft."""

_PROBE_EVERY = 16
_PROBE_LENGTH = 2
"""While copying does not pay off, every 16th match copies 2 tokens, to notice when it does again."""


class NgramIndex:
    """Finds earlier occurrences of the end of a token list, in time that does not grow with its length.

    A hash table keeps the last position after each run of four, two and one tokens; each position links to
    the previous one after the same run, as in the hash chains of deflate (RFC 1951 §4). A search follows a
    few links; a token costs three entries.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._last: dict[tuple[int, ...], int] = {}
        self._before = {size: array("i") for size in RUN_SIZES}

    def append(self, token: int) -> None:
        """Append a token."""
        # Runs are indexed when the token after them is known; its position is their continuation.
        position = len(self.tokens)
        for size in RUN_SIZES:
            before = -1
            if position >= size:
                run = tuple(self.tokens[position - size :])
                before = self._last.get(run, -1)
                self._last[run] = position
            self._before[size].append(before)
        self.tokens.append(token)

    def find(self) -> tuple[int, int] | None:
        """Return the position after the best earlier match of the end, and the match's length; None if there
        is none.
        """
        for size in RUN_SIZES:
            place = self._last.get(tuple(self.tokens[-size:]), -1) if len(self.tokens) > size else -1
            if place < 0:
                continue
            best, longest = place, 0
            for _ in range(_MAX_CANDIDATES):
                matched = self._matching(place, size)
                if matched > longest:
                    best, longest = place, matched
                place = self._before[size][place]
                if place < 0 or longest >= LONGEST_MATCH:
                    break
            return best, longest
        return None

    def next(self, place: int, length: int) -> list[int]:
        """Return the ``length`` tokens from a position on; where the list ends, the copied part is
        repeated.
        """
        following = self.tokens[place : place + length]
        period = len(following)
        while len(following) < length:
            following.append(following[-period])
        return following

    def _matching(self, place: int, known: int) -> int:
        """Return the length of the match before ``place``, of which ``known`` tokens are known to match."""
        most = min(place, LONGEST_MATCH)
        tokens, end = self.tokens, len(self.tokens)
        return next((n for n in range(known, most) if tokens[place - 1 - n] != tokens[end - 1 - n]), most)


@dataclass(slots=True)
class MatchAcceptance:
    """Acceptance of copied tokens in a request, by length of the match."""

    _accepted: list[float] = field(default_factory=lambda: [prior * _WEIGHT for prior in _PRIOR])
    _tried: list[float] = field(default_factory=lambda: [_WEIGHT] * len(_PRIOR))
    _idle: int = 0

    def copied_length(self, matched: int, shape: DrafterChosenChain) -> int:
        """Return the number of tokens to copy after a match.

        It is the number that pays off; if none does, a few are copied now and then, as a probe.

        Args:
            matched: length of the match.
            shape: the longest chain, and the function that returns how many tokens pay off.
        """
        at = _class(matched)
        worth = min(shape.worth(self._accepted[at] / self._tried[at]), shape.depth)
        if worth:
            return worth
        self._idle += 1
        return min(_PROBE_LENGTH, shape.depth) if self._idle % _PROBE_EVERY == 0 else 0

    def learn(self, matched: int, drafted: int, accepted: int) -> None:
        """Record that ``accepted`` of ``drafted`` tokens after a match were accepted."""
        at = _class(matched)
        self._accepted[at] = self._accepted[at] * _DECAY + accepted
        self._tried[at] = self._tried[at] * _DECAY + accepted + (accepted < drafted)


def _class(matched: int) -> int:
    """Return the class of a match, by its length."""
    return sum(matched >= least for least in _CLASSES)


@dataclass(slots=True)
class NgramState:
    """A sequence's index, and the acceptance of its matches."""

    past: NgramIndex = field(default_factory=NgramIndex)
    acceptance: MatchAcceptance = field(default_factory=MatchAcceptance)
    matched: int = 0

    def read(self, tokens: list[int], end: int) -> None:
        """Index the tokens up to ``end``."""
        for token in tokens[len(self.past.tokens) : end]:
            self.past.append(token)


class NgramDrafter(Drafter):
    """Drafts the tokens that followed an earlier occurrence. They are picked, not drawn, so q is one-hot."""

    length = "own"
    device_rounds = True

    def __init__(self) -> None:
        self._states: dict[int, NgramState] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Index a chunk of the prompt."""
        state = self._states.setdefault(sequence.cache_slot, NgramState())
        state.read(sequence.tokens, len(state.past.tokens) + MAX_PASS_ROWS)
        return len(state.past.tokens) == len(sequence.tokens)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Propose the tokens after the best match, as many as the shape or the match's acceptance allows."""
        return [self._tree(s, shape) for s, shape in zip(sequences, shapes, strict=True)]

    def _tree(self, sequence: Sequence, shape: DraftShape) -> TokenTree:
        state = self._states[sequence.cache_slot]
        state.read(sequence.tokens, len(sequence.tokens))
        found = state.past.find()
        if found is None:
            return TokenTree()
        place, state.matched = found
        length = (
            state.acceptance.copied_length(state.matched, shape)
            if isinstance(shape, DrafterChosenChain)
            else len(shape)
        )
        return TokenTree.chain(state.past.next(place, length))

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Record how many tokens of the match were accepted."""
        if len(tree):
            state = self._states[sequence.cache_slot]
            state.acceptance.learn(state.matched, len(tree), len(path))

    def end(self, sequence: Sequence) -> None:
        """Forget the sequence."""
        self._states.pop(sequence.cache_slot, None)
