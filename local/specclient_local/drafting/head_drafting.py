"""Functions that drafters by heads (EAGLE, Medusa) share."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

from specclient_local.drafting.drafter import DraftShape, chain, clip_shape, shape_size
from specclient_local.drafting.tree_growth import GROWN_TREE_BREADTH
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree


class BatchDrafter(Protocol):
    """Drafts for several sequences in one pass."""

    def draw(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Draft a tree for each sequence."""
        ...


def draft_batched(
    drafter: BatchDrafter, sequences: Seq[Sequence], shapes: Seq[DraftShape]
) -> list[TokenTree]:
    """Draft for all sequences in one pass; a sequence whose answer a seed must reproduce is drafted alone.

    The last bits of q depend on the batch, and could, very rarely, change the answer of such a sequence.
    """
    trees: dict[int, TokenTree] = {}
    together = [i for i, sequence in enumerate(sequences) if not sequence.reproducible]
    alone = [[i] for i, sequence in enumerate(sequences) if sequence.reproducible]
    for group in [together, *alone] if together else alone:
        found = drafter.draw([sequences[i] for i in group], [shapes[i] for i in group])
        trees.update(zip(group, found, strict=True))
    return [trees[i] for i in range(len(sequences))]


def fit_shape(shape: DraftShape, depth: int, room: int) -> DraftShape:
    """Return a shape with at most ``depth`` levels; a chain if growing the tree needs more than ``room``
    positions.
    """
    shape = clip_shape(shape, depth, max(shape_size(shape), depth))
    most = shape_size(shape) if isinstance(shape, tuple) else GROWN_TREE_BREADTH * len(shape)
    return shape if most <= room else chain(min(len(shape), room))
