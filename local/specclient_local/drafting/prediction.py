"""Turn a text that the user expects into guesses at the answer (OpenAI, "Predicted Outputs").

The next tokens of the prediction are the draft. Where the answer departs from it, the place at which
the answer goes on is searched for: an edited file is mostly the file.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from specclient_local.drafting.drafter import DraftShape
from specclient_local.drafting.suffix_index import LONGEST_CONTEXT, SuffixIndex
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_WINDOW = 16
"""How far ahead of the departure a single equal token counts as the place to go on."""


class PredictionDrafter:
    """Drafts the next tokens of :attr:`Sequence.prediction`: picked, not drawn, so their q is one-hot."""

    def __init__(self) -> None:
        self._places: dict[int, PredictionCursor] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Index the prediction; the answer is expected to begin as it does."""
        predicted = sequence.prediction
        if sequence.cache_slot not in self._places:
            tokens = [] if predicted is None else predicted.tokens
            self._places[sequence.cache_slot] = PredictionCursor(tokens, sequence.prompt_tokens)
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Offer as many next tokens as asked; fewer at a prediction's end, none while its place is lost."""
        trees: list[TokenTree] = []
        for sequence, shape in zip(sequences, shapes, strict=True):
            place = self._places[sequence.cache_slot]
            place.follow(sequence.tokens)
            trees.append(TokenTree.chain(place.next(len(shape))))
        return trees

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Count what became of the proposal, and trust less in places that proved wrong."""
        if len(tree) and sequence.prediction is not None:
            place = self._places[sequence.cache_slot]
            sequence.prediction.count(range(place.at, place.at + len(tree)), len(path))
            place.judge(len(path))

    def end(self, sequence: Sequence) -> None:
        """Forget the prediction."""
        self._places.pop(sequence.cache_slot, None)


class PredictionCursor:
    """Where in a prediction an answer is.

    Attributes:
        at: index of the next predicted token.
        lost: whether that is unknown; ``at`` is then where it was last known.

    Args:
        tokens: the prediction.
        prompt: how many tokens come before the answer.
    """

    def __init__(self, tokens: list[int], prompt: int) -> None:
        self._index = SuffixIndex(tokens)
        self._prompt = self._read = prompt
        self._needed = 1
        self.at = 0
        self.lost = False

    def follow(self, sequence: list[int]) -> None:
        """Go along with the new tokens of prompt and answer, and search for the place once they depart."""
        tokens, departed = self._index.tokens, False
        for token in sequence[self._read :]:
            if not self.lost and self.at < len(tokens) and tokens[self.at] == token:
                self.at += 1
            else:
                departed = departed or not self.lost
                self.lost = True
        self._read = len(sequence)
        if self.lost:
            recent = max(self._prompt, self._read - LONGEST_CONTEXT)
            self._search(sequence[recent:], departed=departed)

    def next(self, length: int) -> list[int]:
        """Return the next tokens, as many as there are and ``length`` at most."""
        return [] if self.lost else self._index.tokens[self.at : self.at + length]

    def judge(self, accepted: int) -> None:
        """Ask for a longer match next time where a proposal was refused whole."""
        self._needed = 1 if accepted else min(self._needed + 1, LONGEST_CONTEXT)

    def _search(self, context: list[int], *, departed: bool) -> None:
        found = self._index.find(context, self.at)
        if found is not None and found[1] >= self._needed:
            place, matched = found
            if matched > 1 or self.at <= place <= self.at + _WINDOW:
                self.at, self.lost = place, False
                return
        if departed and self._needed == 1 and self.at + 1 < len(self._index.tokens):
            # Nothing like it anywhere: perhaps one token stands in the place of another.
            self.at, self.lost = self.at + 1, False
