"""Drafts by a small model with another vocabulary, restricted to the tokens that both vocabularies have.

Token-level intersection (Timor et al., arXiv 2502.05202, algorithm 4): the draft's distribution is restricted
to common tokens and renormalised before anything is drawn, so each node's q is the distribution from which it
was drawn, and chains and trees are exact at any temperature. In the draft's input, the target's other tokens
are spelled in the draft's own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape
from specclient_local.drafting.vocabulary_match import CommonTokens
from specclient_local.request.sequence import LogitsProcessor, Sequence
from specclient_local.request.token_tree import Distribution, TokenTree


class CommonTokensProcessor:
    """Restricts the draft's logits to common tokens, and applies the request's own logits processor.

    Args:
        common: the common tokens.
        vocab: number of columns of the target's logits.
        own: the request's logits processor, in the target's tokens.
    """

    ended = False

    def __init__(self, common: CommonTokens, vocab: int, own: LogitsProcessor | None) -> None:
        self._target, self._draft = torch.from_numpy(common.target), torch.from_numpy(common.draft)
        self._back = dict(zip(common.draft.tolist(), common.target.tolist(), strict=True))
        self._vocab = vocab
        self._own = own

    def process(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return the draft's logits ``[N, Vd]``, with -inf for tokens that the target does not have."""
        target, draft = self._target.to(logits.device), self._draft.to(logits.device)
        kept = logits[:, draft]
        if self._own is not None:
            wide = logits.new_full((len(logits), self._vocab), -torch.inf)
            wide[:, target] = kept
            target_paths = [[self._back[token] for token in path] for path in paths]
            kept = self._own.process(wide, target_paths)[:, target].to(logits.dtype)
        shaped = torch.full_like(logits, -torch.inf)
        shaped[:, draft] = kept
        return shaped

    def take(self, token: int) -> None:
        """Do nothing: the request extends its own logits processor."""


@dataclass(slots=True)
class SharedVocabularySequence:
    """A sequence in the draft's tokens.

    Attributes:
        source: the request's own list of tokens; another list means another request.
        shadow: a sequence of the draft's tokens, in the same slot.
        read: number of tokens of ``source`` that are in ``shadow``.
        tree: the last proposed tree, in the draft's tokens.
    """

    source: list[int]
    shadow: Sequence
    read: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class SharedVocabularyDrafter(Drafter):
    """Drafts by a small model with another vocabulary.

    Args:
        model: the small model's drafter, over its own vocabulary.
        common: the common tokens.
        vocab: number of columns of the target's logits.
    """

    adaptive_trees = True

    def __init__(self, model: DraftModel, common: CommonTokens, vocab: int) -> None:
        self.model = model
        self._common = common
        self._vocab = vocab
        self._states: dict[int, SharedVocabularySequence] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt, spelled in the draft's tokens."""
        return self.model.begin(self._read(sequence).shadow)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft trees of common tokens; see :meth:`DraftModel.propose`."""
        state = [self._read(sequence) for sequence in sequences]
        trees = self.model.propose([each.shadow for each in state], shapes)
        for each, tree in zip(state, trees, strict=True):
            each.tree = tree
        return [self._translated(tree) for tree in trees]

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Keep the accepted nodes in the draft's cache; its tree has the same nodes."""
        state = self._states.get(sequence.cache_slot)
        if state is not None:
            self.model.commit(state.shadow, state.tree, path)
            state.tree = TokenTree()

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may then be assigned to another sequence."""
        self._states.pop(sequence.cache_slot, None)
        self.model.end(sequence)

    def _read(self, sequence: Sequence) -> SharedVocabularySequence:
        """Return the sequence in the draft's tokens, up to date."""
        state = self._states.get(sequence.cache_slot)
        if state is None or state.source is not sequence.tokens:
            processor = CommonTokensProcessor(self._common, self._vocab, sequence.logits_processor)
            shadow = replace(sequence, tokens=[], logits_processor=processor)
            state = self._states[sequence.cache_slot] = SharedVocabularySequence(sequence.tokens, shadow)
        for token in sequence.tokens[state.read :]:
            state.shadow.tokens += self._common.spelled[token]
        state.read = len(sequence.tokens)
        state.shadow.random = sequence.random
        return state

    def _translated(self, tree: TokenTree) -> TokenTree:
        """Return a tree in the target's tokens, each with the distribution from which it was drawn."""
        ids = dict(zip(self._common.draft.tolist(), self._common.target.tolist(), strict=True))
        translated = TokenTree()
        for token, parent, q in zip(tree.tokens, tree.parents, tree.q, strict=True):
            translated.add(parent, ids[token], None if q is None else self._translated_distribution(q, ids))
        return translated

    def _translated_distribution(self, q: Distribution, ids: dict[int, int]) -> Distribution:
        if isinstance(q, int):
            return ids[q]
        wide = np.zeros(self._vocab)
        wide[self._common.target] = q[self._common.draft]
        return wide
