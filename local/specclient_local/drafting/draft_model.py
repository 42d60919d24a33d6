"""Turn sequences into chains of guesses by a small model of the same vocabulary.

Leviathan et al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.model.runner import CHUNK, Part, Runner
from specclient_local.model.sampling import all_distributions
from specclient_local.sequence import Sequence
from specclient_local.tree import Distribution, TokenTree


@dataclass(slots=True)
class Chain:
    """A sequence's proposal while it grows.

    Attributes:
        left: tokens still to be drawn.
        unseen: tokens the draft has not in its cache.
    """

    sequence: Sequence
    left: int
    unseen: list[int] = field(default_factory=list)
    tree: TokenTree = field(default_factory=TokenTree)

    def shaped(self, logits: Tensor) -> Tensor:
        """Return what the draft says comes next, ``[1, V]``, as the request's rules have it."""
        rules = self.sequence.rules
        return logits if rules is None else rules.shape(logits, [self.tree.tokens])

    def grow(self, q: Distribution) -> None:
        """Draw the next token."""
        token = self.sequence.dice.draw(q)
        self.tree.add(len(self.tree) - 1, token, q)
        self.unseen = [token]
        self.left -= 1


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

    def propose(self, sequences: Seq[Sequence], lengths: Seq[int]) -> list[TokenTree]:
        """Draw chains of ``lengths`` tokens, fewer where the draft's own context ends.

        All sequences take each step in one pass, but for those whose answer a seed is to fix: the last
        bits of a q depend on who shares the pass, and with them, once in a great while, the answer.
        """
        chains = [Chain(s, self._reach(s, length)) for s, length in zip(sequences, lengths, strict=True)]
        together = [chain for chain in chains if chain.left and not chain.sequence.reproducible]
        self._draw(together)
        for chain in chains:
            if chain.left and chain.sequence.reproducible:
                self._draw([chain])
        return [chain.tree for chain in chains]

    def _reach(self, sequence: Sequence, length: int) -> int:
        return max(0, min(length, self.runner.context - len(sequence.tokens) + 1))

    def _draw(self, chains: list[Chain]) -> None:
        """Let chains grow step by step, until each is as long as it should be."""
        for chain in chains:
            chain.unseen = self._known(chain.sequence.tokens[self.runner.length(chain.sequence.granted) :])
        while chains:
            logits = self.runner.score_all([Part(chain.sequence.granted, chain.unseen) for chain in chains])
            shaped = [
                chain.shaped(rows[:, : self._vocab]) for chain, rows in zip(chains, logits, strict=True)
            ]
            laws = all_distributions(shaped, [chain.sequence.params for chain in chains])
            for chain, law in zip(chains, laws, strict=True):
                if isinstance(law, EngineError):
                    chain.left = 0  # a draft without a guess; the target's answer does not need it
                else:
                    # At temperature 0 q is the one-hot of the token itself.
                    chain.grow(self._widen(law[0]))
            chains = [chain for chain in chains if chain.left]

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
