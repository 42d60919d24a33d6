"""Drafts by Medusa heads: trees of the heads' most likely tokens.

Medusa (arXiv 2401.10774 §2.1.2): every node of a level has the same children, the next head's most likely
tokens. They are picked, not drawn, at any temperature, so their q is one-hot. A grown tree keeps the nodes
with the highest product of head probabilities, as the sparse tree of §2.3.3, but built anew for each
position.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.drafting.drafter import Drafter, DraftShape, GrownTree
from specclient_local.drafting.head_drafting import draft_batched, fit_shape
from specclient_local.drafting.tree_growth import sparse_tree, tree_growth_for
from specclient_local.model.heads.medusa import MedusaHeads
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.native.medusa import NativeMedusa
from specclient_local.model.sampling import all_distributions
from specclient_local.request.params import MAX_TREE_NODES, SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_PREVIOUS_WEIGHT = 0.2
"""Weight of the previous position's head log-probabilities in grown trees."""

_GREEDY = SamplingParams(temperature=0.0)


class MedusaDrafter(Drafter):
    """Drafts by Medusa heads; keeps no state.

    Args:
        target: the model whose hidden states the heads read.
        heads: the loaded heads.

    Attributes:
        heads: as above.
    """

    adaptive_trees = True

    def __init__(self, target: HiddenStateRunner, heads: MedusaHeads | NativeMedusa) -> None:
        self._target = target
        self.heads = heads

    @property
    def depth(self) -> int:
        """Maximum number of levels: one per head."""
        return self.heads.shape.heads

    def begin(self, sequence: Sequence) -> bool:  # noqa: ARG002 - the target's pass keeps the hidden states
        """Return True: nothing has to be prepared."""
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft trees of these shapes; empty ones if the target's cache is still empty."""
        return draft_batched(self, sequences, shapes)

    @torch.inference_mode()
    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft all trees from one pass of the heads."""
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
        rows = self.heads.logits(self.heads.read(torch.cat(states)), deepest)
        for i, own in zip(able, torch.split(rows, list(map(len, states))), strict=True):
            trees[i] = _tree(sequences[i], fits[i], _with_previous_position(own))
        return trees

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Do nothing: the target keeps its hidden states."""

    def end(self, sequence: Sequence) -> None:
        """Do nothing: there is no state."""


def _with_previous_position(rows: Tensor) -> Tensor:
    """Return ``[heads, V]`` scores of the last position, mixed with the previous position's if it is given.

    Head k at this position and head k + 1 at the previous one predict the same token.

    Args:
        rows: ``[1 or 2, heads, V]`` logits.
    """
    if len(rows) == 1:
        return rows[0]
    shares = torch.log_softmax(rows.float(), dim=-1)
    shares[1, :-1] += _PREVIOUS_WEIGHT * shares[0, 1:]
    return shares[1]


def _tree(sequence: Sequence, shape: DraftShape, rows: Tensor) -> TokenTree:
    """Return a tree from the heads' logits ``[heads, V]``, as deep as they are finite and allowed."""
    if isinstance(shape, GrownTree) and sequence.logits_processor is None:
        return sparse_tree(rows, shape)
    draft = GrowingDraft(sequence, tree_growth_for(shape), sequence.tokens[-1:])
    for row in rows:
        if not draft.going:
            break
        logits = draft.shaped(row.expand(len(draft.frontier), -1))
        if logits is None:
            break
        (picks,) = all_distributions([logits], [_GREEDY])
        if isinstance(picks, EngineError):
            break  # the answer does not need the draft
        draft.grow(logits, picks)
    return draft.growth.finish()[0]
