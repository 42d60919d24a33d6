"""Turn a sequence's own past into guesses: what followed the last time its end stood there.

Prompt lookup (github.com/apoorvumang/prompt-lookup-decoding), over prompt and answer. The longest match is
taken, of equal ones the latest; how far it is followed depends on how well matches of its length have
fared in this request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specclient_local.drafting.drafter import DrafterChosenChain, DraftShape
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_SIZES = (4, 2, 1)
_TRIED = 8
"""Places that are followed back in a search."""

LONGEST_MATCH = 16
"""Most tokens a match is followed back."""

_CLASSES = (2, 4, 8, 16)
_PRIOR = (0.4, 0.6, 0.75, 0.85, 0.97)
_WEIGHT = 4.0
_DECAY = 0.97
_PROBE_EVERY = 16
_PROBE_LENGTH = 2


class NgramIndex:
    """Finds where the end of some tokens stood before, in time that does not grow with them.

    The last place behind each run of four, two and one tokens is kept in a hash table, and with each place
    the one before it behind the same run, as in the chains of deflate (RFC 1951 §4): a search follows a
    few of these back, and a token costs three entries.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._last: dict[tuple[int, ...], int] = {}
        self._before = {size: array("i") for size in _SIZES}

    def append(self, token: int) -> None:
        """Add a token at the end."""
        # The runs that ended here have a token behind them now: they can be gone on from.
        behind = len(self.tokens)
        for size in _SIZES:
            before = -1
            if behind >= size:
                run = tuple(self.tokens[behind - size :])
                before = self._last.get(run, -1)
                self._last[run] = behind
            self._before[size].append(before)
        self.tokens.append(token)

    def find(self) -> tuple[int, int] | None:
        """Return the place behind the best earlier match of the end, and how many tokens match."""
        for size in _SIZES:
            place = self._last.get(tuple(self.tokens[-size:]), -1) if len(self.tokens) > size else -1
            if place < 0:
                continue
            best, longest = place, 0
            for _ in range(_TRIED):
                matched = self._matching(place, size)
                if matched > longest:
                    best, longest = place, matched
                place = self._before[size][place]
                if place < 0 or longest >= LONGEST_MATCH:
                    break
            return best, longest
        return None

    def next(self, place: int, length: int) -> list[int]:
        """Return what followed a place; where that reaches the end, what repeats goes on repeating."""
        following = self.tokens[place : place + length]
        period = len(following)
        while len(following) < length:
            following.append(following[-period])
        return following

    def _matching(self, place: int, known: int) -> int:
        """Return how many tokens before ``place`` are those at the end, ``known`` of them being so."""
        most = min(place, LONGEST_MATCH)
        tokens, end = self.tokens, len(self.tokens)
        return next((n for n in range(known, most) if tokens[place - 1 - n] != tokens[end - 1 - n]), most)


@dataclass(slots=True)
class MatchAcceptance:
    """How well matches have fared in a request, by how long they were."""

    _accepted: list[float] = field(default_factory=lambda: [prior * _WEIGHT for prior in _PRIOR])
    _tried: list[float] = field(default_factory=lambda: [_WEIGHT] * len(_PRIOR))
    _idle: int = 0

    def levels(self, matched: int, shape: DrafterChosenChain) -> int:
        """Return how far to follow a match: as far as pays, and a little now and then where nothing does."""
        at = _class(matched)
        worth = min(shape.worth(self._accepted[at] / self._tried[at]), shape.depth)
        if worth:
            return worth
        self._idle += 1
        return min(_PROBE_LENGTH, shape.depth) if self._idle % _PROBE_EVERY == 0 else 0

    def learn(self, matched: int, drafted: int, accepted: int) -> None:
        """Note what became of a draft."""
        at = _class(matched)
        self._accepted[at] = self._accepted[at] * _DECAY + accepted
        self._tried[at] = self._tried[at] * _DECAY + accepted + (accepted < drafted)


def _class(matched: int) -> int:
    return sum(matched >= least for least in _CLASSES)


@dataclass(slots=True)
class NgramState:
    """A sequence's past, and how it has served."""

    past: NgramIndex = field(default_factory=NgramIndex)
    trust: MatchAcceptance = field(default_factory=MatchAcceptance)
    matched: int = 0

    def read(self, tokens: list[int], end: int) -> None:
        """Take in the tokens up to an end."""
        for token in tokens[len(self.past.tokens) : end]:
            self.past.append(token)


class NgramDrafter:
    """Drafts what followed before: picked, not drawn, so its q is one-hot. It needs no model."""

    def __init__(self) -> None:
        self._looking: dict[int, NgramState] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Index a chunk of the prompt."""
        looking = self._looking.setdefault(sequence.cache_slot, NgramState())
        looking.read(sequence.tokens, len(looking.past.tokens) + MAX_PASS_ROWS)
        return len(looking.past.tokens) == len(sequence.tokens)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Offer what followed the best match, as far as asked, or as far as it is trusted."""
        return [self._tree(s, shape) for s, shape in zip(sequences, shapes, strict=True)]

    def _tree(self, sequence: Sequence, shape: DraftShape) -> TokenTree:
        looking = self._looking[sequence.cache_slot]
        looking.read(sequence.tokens, len(sequence.tokens))
        found = looking.past.find()
        if found is None:
            return TokenTree()
        place, looking.matched = found
        length = (
            looking.trust.levels(looking.matched, shape)
            if isinstance(shape, DrafterChosenChain)
            else len(shape)
        )
        return TokenTree.chain(looking.past.next(place, length))

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Learn how far the match was right."""
        if len(tree):
            looking = self._looking[sequence.cache_slot]
            looking.trust.learn(looking.matched, len(tree), len(path))

    def end(self, sequence: Sequence) -> None:
        """Forget the sequence."""
        self._looking.pop(sequence.cache_slot, None)
