"""Turn a target's last hidden state into trees of its Medusa heads' likeliest tokens.

Medusa (arXiv 2401.10774 §2.1.2): below each guess of a level stand the same tokens, the likeliest of the
next head. They are picked, not drawn, at any temperature: their q is one-hot. A grown tree has the guesses
whose heads' probabilities have the highest product: the sparse tree of §2.3.3, made anew for each place
instead of once for all.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.drafting.drafter import DraftShape, GrownTree
from specclient_local.drafting.head_drafting import draft_batched, fit_shape
from specclient_local.drafting.tree_growth import growth, sparse_tree
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.native.medusa import NativeMedusa
from specclient_local.model.sampling import all_distributions
from specclient_local.request.params import MAX_TREE_NODES, SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_RECALL = 0.2
"""What the heads of the place before count, in trees that are grown."""

_LIKELIEST = SamplingParams(temperature=0.0)


class MedusaDrafter:
    """Drafts by Medusa heads; it has no state of its own.

    Args:
        target: whose hidden states they read.
        heads: as loaded.
    """

    def __init__(self, target: HiddenStateRunner, heads: MedusaHeads | NativeMedusa) -> None:
        self._target = target
        self._heads = heads

    @property
    def depth(self) -> int:
        """Most levels of a tree: one of each head."""
        return self._heads.shape.heads

    def begin(self, sequence: Sequence) -> bool:  # noqa: ARG002 - the target's pass leaves all that is read
        """Return True: there is nothing to prepare."""
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees of these shapes; empty ones where no token has been read yet."""
        return draft_batched(self, sequences, shapes)

    @torch.inference_mode()
    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Grow trees out of one pass of the heads."""
        fits = [fit_shape(shape, self.depth, MAX_TREE_NODES) for shape in shapes]
        trees = [TokenTree() for _ in sequences]
        able = [i for i, s in enumerate(sequences) if len(s.tokens) > 1 and len(fits[i])]
        if not able:
            return trees
        layers = (self._target.config.layers,)
        states: list[Tensor] = []
        for i in able:
            slot, end = sequences[i].cache_slot, len(sequences[i].tokens) - 1
            first = end - 2 if isinstance(fits[i], GrownTree) and end > 1 else end - 1
            states.append(self._target.features(slot, first, end, layers))
        deepest = max(len(fits[i]) for i in able)
        rows = self._heads.logits(self._heads.read(torch.cat(states)), deepest)
        for i, own in zip(able, torch.split(rows, list(map(len, states))), strict=True):
            trees[i] = _tree(sequences[i], fits[i], _recalled(own))
        return trees

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Learn nothing: the target keeps its hidden states itself."""

    def end(self, sequence: Sequence) -> None:
        """Forget nothing."""


def _recalled(rows: Tensor) -> Tensor:
    """Return what the heads say, ``[heads, V]``, of the last place's logits and, if given, the one's before.

    What a head says of a token, the next head has said of it one place before.

    Args:
        rows: ``[1 or 2, heads, V]`` logits.
    """
    if len(rows) == 1:
        return rows[0]
    shares = torch.log_softmax(rows.float(), dim=-1)
    shares[1, :-1] += _RECALL * shares[0, 1:]
    return shares[1]


def _tree(sequence: Sequence, shape: DraftShape, rows: Tensor) -> TokenTree:
    """Return the tree of what the heads say, ``[heads, V]``, as far as that is finite and allowed."""
    if isinstance(shape, GrownTree) and sequence.rules is None:
        return sparse_tree(rows, shape)
    draft = GrowingDraft(sequence, growth(shape), sequence.tokens[-1:])
    for row in rows:
        if not draft.going:
            break
        logits = draft.shaped(row.expand(len(draft.frontier), -1))
        if logits is None:
            break
        (picks,) = all_distributions([logits], [_LIKELIEST])
        if isinstance(picks, EngineError):
            break  # the answer does not need the guesses
        draft.grow(logits, picks)
    return draft.growth.finish()[0]
