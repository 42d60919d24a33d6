"""Turn sequences into guesses by a small model of another vocabulary, held to the tokens both have.

Token-level intersection (Timor et al., arXiv 2502.05202, alg. 4): the draft's distribution is cut to the
common tokens and renormalised before anything is drawn, so the q of each guess is the one it was drawn from
and chains and trees are exact at any temperature. What the target says beside them the draft reads spelled in
its own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import DraftShape
from specclient_local.drafting.vocabulary_match import CommonTokens
from specclient_local.request.sequence import LogitsProcessor, Sequence
from specclient_local.request.token_tree import Distribution, TokenTree


class CommonTokensProcessor:
    """The rules of a request as the draft is to keep them: of common tokens alone, and by the request's own.

    Args:
        common: what both vocabularies have.
        vocab: columns of the target's logits.
        own: the request's rules, in the target's tokens.
    """

    ended = False

    def __init__(self, common: CommonTokens, vocab: int, own: LogitsProcessor | None) -> None:
        self._target, self._draft = torch.from_numpy(common.target), torch.from_numpy(common.draft)
        self._back = dict(zip(common.draft.tolist(), common.target.tolist(), strict=True))
        self._vocab = vocab
        self._own = own

    def shape(self, logits: Tensor, paths: Seq[Seq[int]]) -> Tensor:
        """Return the draft's logits ``[N, Vd]``, minus infinity where the target has no such token."""
        target, draft = self._target.to(logits.device), self._draft.to(logits.device)
        kept = logits[:, draft]
        if self._own is not None:
            wide = logits.new_full((len(logits), self._vocab), -torch.inf)
            wide[:, target] = kept
            said = [[self._back[token] for token in path] for path in paths]
            kept = self._own.shape(wide, said)[:, target].to(logits.dtype)
        shaped = torch.full_like(logits, -torch.inf)
        shaped[:, draft] = kept
        return shaped

    def take(self, token: int) -> None:
        """Learn nothing: the request's own rules are told by the request."""


@dataclass(slots=True)
class SharedVocabularySequence:
    """A sequence as the draft reads it.

    Attributes:
        source: the request's own growing list; another list is another request.
        shadow: a sequence of the draft's tokens, in the same slot.
        read: how many of the source's tokens are in it.
        tree: the last proposal, in the draft's tokens.
    """

    source: list[int]
    shadow: Sequence
    read: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class SharedVocabularyDrafter:
    """Drafts by a small model with another vocabulary.

    Args:
        model: the small model's own drafter, over its own vocabulary.
        common: what both vocabularies have.
        vocab: columns of the target's logits.
    """

    def __init__(self, model: DraftModel, common: CommonTokens, vocab: int) -> None:
        self.model = model
        self._common = common
        self._vocab = vocab
        self._reading: dict[int, SharedVocabularySequence] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt, spelled in the draft's tokens."""
        return self.model.begin(self._read(sequence).shadow)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees of common tokens; see :meth:`DraftModel.propose`."""
        reading = [self._read(sequence) for sequence in sequences]
        trees = self.model.propose([each.shadow for each in reading], shapes)
        for each, tree in zip(reading, trees, strict=True):
            each.tree = tree
        return [self._translated(tree) for tree in trees]

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Keep of the draft's cache what the target accepted: its trees have the same nodes."""
        reading = self._reading.get(sequence.cache_slot)
        if reading is not None:
            self.model.commit(reading.shadow, reading.tree, path)
            reading.tree = TokenTree()

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may then be assigned to another sequence."""
        self._reading.pop(sequence.cache_slot, None)
        self.model.end(sequence)

    def _read(self, sequence: Sequence) -> SharedVocabularySequence:
        """Return a sequence in the draft's tokens, up to its last one."""
        reading = self._reading.get(sequence.cache_slot)
        if reading is None or reading.source is not sequence.tokens:
            rules = CommonTokensProcessor(self._common, self._vocab, sequence.rules)
            shadow = replace(sequence, tokens=[], rules=rules)
            reading = self._reading[sequence.cache_slot] = SharedVocabularySequence(sequence.tokens, shadow)
        for token in sequence.tokens[reading.read :]:
            reading.shadow.tokens += self._common.spelled[token]
        reading.read = len(sequence.tokens)
        reading.shadow.random = sequence.random
        return reading

    def _translated(self, tree: TokenTree) -> TokenTree:
        """Return a tree in the target's tokens, each with the distribution it was drawn from."""
        ids = dict(zip(self._common.draft.tolist(), self._common.target.tolist(), strict=True))
        told = TokenTree()
        for token, parent, q in zip(tree.tokens, tree.parents, tree.q, strict=True):
            told.add(parent, ids[token], None if q is None else self._law(q, ids))
        return told

    def _law(self, q: Distribution, ids: dict[int, int]) -> Distribution:
        if isinstance(q, int):
            return ids[q]
        law = np.zeros(self._vocab)
        law[self._common.target] = q[self._common.draft]
        return law
