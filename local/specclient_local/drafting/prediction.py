"""Drafts from a predicted answer that the request brings (OpenAI, "Predicted Outputs").

The next tokens of the prediction are the draft. When the answer departs from the prediction, the drafter
searches for the position from which the answer follows it again, because an edited file is mostly the
original.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from specclient_local.drafting.drafter import Drafter, DraftShape
from specclient_local.drafting.suffix_index import LONGEST_MATCH, SuffixIndex
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_WINDOW = 16
"""Maximum distance after a departure at which a single equal token counts as the position to continue."""


class PredictionDrafter(Drafter):
    """Drafts the next tokens of :attr:`Sequence.prediction`. They are picked, not drawn: q is one-hot."""

    length = "doubling"
    device_rounds = True

    def __init__(self) -> None:
        self._places: dict[int, PredictionCursor] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Index the prediction. The answer is expected to begin with it."""
        predicted = sequence.prediction
        if sequence.cache_slot not in self._places:
            tokens = [] if predicted is None else predicted.tokens
            self._places[sequence.cache_slot] = PredictionCursor(tokens, sequence.prompt_tokens)
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Propose the next predicted tokens; fewer at the prediction's end, none while the position is
        unknown.
        """
        trees: list[TokenTree] = []
        for sequence, shape in zip(sequences, shapes, strict=True):
            place = self._places[sequence.cache_slot]
            place.follow(sequence.tokens)
            trees.append(TokenTree.chain(place.next(len(shape))))
        return trees

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Record the outcome, and require a longer match next time if the position was wrong."""
        if len(tree) and sequence.prediction is not None:
            place = self._places[sequence.cache_slot]
            sequence.prediction.count(range(place.at, place.at + len(tree)), len(path))
            place.record(len(path))

    def end(self, sequence: Sequence) -> None:
        """Forget the prediction."""
        self._places.pop(sequence.cache_slot, None)


class PredictionCursor:
    """The position in a prediction that an answer has reached.

    Attributes:
        at: index of the next predicted token.
        lost: whether the position is unknown; ``at`` is then the last known one.

    Args:
        tokens: the prediction.
        prompt: number of tokens before the answer.
    """

    def __init__(self, tokens: list[int], prompt: int) -> None:
        self._index = SuffixIndex(tokens)
        self._prompt = self._read = prompt
        self._needed = 1
        self.at = 0
        self.lost = False

    def follow(self, sequence: list[int]) -> None:
        """Advance over the new tokens of prompt and answer; search for the position after a departure."""
        tokens, departed = self._index.tokens, False
        for token in sequence[self._read :]:
            if not self.lost and self.at < len(tokens) and tokens[self.at] == token:
                self.at += 1
            else:
                departed = departed or not self.lost
                self.lost = True
        self._read = len(sequence)
        if self.lost:
            recent = max(self._prompt, self._read - LONGEST_MATCH)
            self._search(sequence[recent:], departed=departed)

    def next(self, length: int) -> list[int]:
        """Return up to ``length`` next predicted tokens."""
        return [] if self.lost else self._index.tokens[self.at : self.at + length]

    def record(self, accepted: int) -> None:
        """Require a longer match next time if the whole proposal was rejected."""
        self._needed = 1 if accepted else min(self._needed + 1, LONGEST_MATCH)

    def _search(self, context: list[int], *, departed: bool) -> None:
        found = self._index.find(context, self.at)
        if found is not None and found[1] >= self._needed:
            place, matched = found
            if matched > 1 or self.at <= place <= self.at + _WINDOW:
                self.at, self.lost = place, False
                return
        if departed and self._needed == 1 and self.at + 1 < len(self._index.tokens):
            # No match: perhaps one token was replaced by another.
            self.at, self.lost = self.at + 1, False
