"""Drafts by a P-EAGLE head: all tokens of a draft from one pass.

P-EAGLE (arXiv 2602.01469 §3): the row of the last token is EAGLE-3's. After it there is one row for each
further token, whose input is a mask token and a learned state instead of the token before it and the target's
state. A row's distribution does not depend on the tokens drafted before it, as with Medusa's heads. A chain
draws each token from its row's distribution, which is its q; siblings of a tree are drawn without
replacement; a grown tree picks the nodes with the highest product of probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from specclient.errors import EngineError
from specclient_local.drafting.draft_model import GrowingDraft
from specclient_local.drafting.drafter import DraftShape, GrownTree, chain
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.head_drafting import fit_shape
from specclient_local.drafting.tree_growth import sparse_tree, tree_growth_for
from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.heads.eagle_runner import EagleRunner
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.prefix_cache import PrefixSharing
from specclient_local.model.sampling import all_distributions
from specclient_local.request.params import MAX_DRAFT_LENGTH
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import Distribution, TokenTree
from specclient_local.request.validation import EmptyConstraintError


class ParallelEagleDrafter(EagleDrafter):
    """Drafts by a P-EAGLE head, with the request's temperature, top-p and top-k.

    Args:
        target: the model whose hidden states the head reads.
        runner: the head.
        sharing: whose rows a prompt with a common prefix reuses in the head's cache.

    Attributes:
        depth: maximum number of levels: the number of tokens that the head was trained to draft, if known.
    """

    def __init__(
        self, target: HiddenStateRunner, runner: EagleRunner, *, sharing: PrefixSharing = "all"
    ) -> None:
        super().__init__(target, runner, sharing=sharing)
        head = runner.head
        assert isinstance(head, EagleHead)
        assert head.shape.mask_token is not None
        self.depth = min(head.shape.block or MAX_DRAFT_LENGTH, MAX_DRAFT_LENGTH)
        self._mask_token = head.shape.mask_token
        with torch.inference_mode():
            self._mask_state = head.mask_state()

    @torch.inference_mode()
    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft all trees from one pass."""
        fits = [
            fit_shape(shape, self.depth, self._room(s)) for s, shape in zip(sequences, shapes, strict=True)
        ]
        trees = [TokenTree() for _ in sequences]
        able = [i for i, s in enumerate(sequences) if len(s.tokens) > 1 and len(fits[i])]
        if not able:
            return trees
        rows = self._rows([sequences[i] for i in able], [len(fits[i]) for i in able])
        own = [self._tree(sequences[i], fits[i], each) for i, each in zip(able, rows, strict=True)]
        for i, tree in zip(able, own, strict=True):
            trees[i] = tree
        return trees

    def _rows(self, sequences: Seq[Sequence], depths: Seq[int]) -> list[Tensor]:
        """Return the logits of each draft's rows, ``[depth, draft_vocab]``, from one pass."""
        parts: list[SlotInput] = []
        states: list[Tensor] = []
        for sequence, depth in zip(sequences, depths, strict=True):
            tokens, known = self._unread(sequence, depth - 1)
            masks = TokenTree.chain([self._mask_token] * (depth - 1))
            parts.append(SlotInput(sequence.cache_slot, tokens, masks))
            states.append(torch.cat((known, self._mask_state.expand(depth - 1, -1))))
        rows, _ = self.runner.step(parts, states)
        for sequence in sequences:  # remove the rows of tokens that were not drafted yet
            self.runner.truncate(sequence.cache_slot, len(sequence.tokens) - 1)
        return rows

    def _tree(self, sequence: Sequence, shape: DraftShape, rows: Tensor) -> TokenTree:
        """Return a tree from the logits of its levels, as deep as they are finite and allowed."""
        # A sum is finite only if all of its numbers are, and takes less time than a look at each of them.
        finite = int(rows.sum(-1).isfinite().long().cumprod(0).sum())
        if finite < len(rows):
            self._broken.add(sequence.cache_slot)
        rows, params = rows[:finite], sequence.params
        if sequence.logits_processor is None and finite:
            if params.temperature == 0.0 and shape == chain(len(shape)):
                found = self._target_ids(rows.argmax(-1)).tolist()
                return TokenTree.chain(found, found)  # one-hot: a greedy draft draws its argmax
            if isinstance(shape, GrownTree):
                return sparse_tree(self._widened(rows), shape)
        draft = GrowingDraft(sequence, tree_growth_for(shape), sequence.tokens[-1:])
        wide = self._widened(rows)
        known = self._distributions(wide, sequence) if sequence.logits_processor is None else None
        for level, row in enumerate(wide):
            if not draft.going:
                break
            nodes = len(draft.frontier)
            logits = draft.shaped(row.expand(nodes, -1))
            if logits is None:
                break
            own = self._distributions(logits, sequence) if known is None else known[level : level + 1] * nodes
            if not own:
                break  # the answer does not need the draft
            draft.grow(logits, own)
        return draft.growth.finish()[0]

    def _distributions(self, logits: Tensor, sequence: Sequence) -> list[Distribution]:
        """Return the distributions of a request after logits ``[N, V]``; none if it cannot sample."""
        if not len(logits):
            return []
        (found,) = all_distributions([logits], [sequence.params])
        if isinstance(found, EngineError):
            if not isinstance(found, EmptyConstraintError):
                self._broken.add(sequence.cache_slot)
            return []
        return list(found)

    def _target_ids(self, ids: Tensor) -> Tensor:
        """Return the target's ids of the head's tokens."""
        own = self.runner.head.weights.ids
        return ids if own is None else own[ids]
