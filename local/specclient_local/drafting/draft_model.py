"""Turn a sequence into a chain of guesses by a small model of the same vocabulary.

Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318).
"""

from __future__ import annotations

import numpy as np

from specclient_local.model.runner import CHUNK, Runner
from specclient_local.model.sampling import distributions
from specclient_local.sequence import Sequence
from specclient_local.tree import Distribution, TokenTree


class DraftModel:
    """Drafts by running a small model token by token, with the request's own temperature, top-p and top-k.

    What the target accepted is already in the draft's cache; tokens it has not seen (the target's own
    one, and the last draft where all were accepted) go through together with its next step.

    Args:
        runner: the small model, with as many slots as the target's.
        vocab: rows of the target's output. Models of one family share a tokenizer but pad its
            vocabulary differently; no draft proposes an id the target has not.
    """

    def __init__(self, runner: Runner, vocab: int) -> None:
        self.runner = runner
        self._vocab = vocab

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt without its last token; nothing of one too long to draft for."""
        slot, whole = sequence.granted, len(sequence.tokens) - 1
        if whole >= self.runner.context:
            return True
        done = self.runner.length(slot)
        end = min(done + CHUNK, whole)
        self.runner.prefill(slot, self._known(sequence.tokens[done:end]))
        return end == whole

    def propose(self, sequence: Sequence, length: int) -> TokenTree:
        """Draw a chain of ``length`` tokens, fewer where the draft's own context ends."""
        slot, tree = sequence.granted, TokenTree()
        length = min(length, self.runner.context - len(sequence.tokens) + 1)
        if length <= 0:
            return tree
        unseen = self._known(sequence.tokens[self.runner.length(slot) :])
        for _ in range(length):
            logits = self.runner.score(slot, unseen)[:, : self._vocab]
            q = self._widen(distributions(logits, sequence.params)[0])
            token = sequence.dice.draw(q)
            unseen = [token]
            # At temperature 0 q is the one-hot of the token itself.
            tree.add(len(tree) - 1, token, q)
        return tree

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Keep of the cache the sequence as it was proposed from and the accepted part of the chain."""
        if len(tree):
            self.runner.truncate(sequence.granted, len(sequence.tokens) + len(path))

    def end(self, sequence: Sequence) -> None:
        """Empty the slot."""
        self.runner.truncate(sequence.granted, 0)

    def _known(self, tokens: list[int]) -> list[int]:
        """Read ids that the draft has not as its first one: any context gives a valid draft."""
        own = self.runner.config.vocab_size
        return tokens if own >= self._vocab else [token if token < own else 0 for token in tokens]

    def _widen(self, q: Distribution) -> Distribution:
        """Give ids that only the target has probability 0."""
        if isinstance(q, int) or len(q) == self._vocab:
            return q
        return np.pad(q, (0, self._vocab - len(q)))
