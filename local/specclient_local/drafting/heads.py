"""Turn rows of logits, one level of guesses after another, into growing trees: what drafts by heads share."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

from specclient_local.drafting.base import Shape, chain, size, within
from specclient_local.drafting.growth import BREADTH
from specclient_local.sequence import Sequence
from specclient_local.tree import TokenTree


class Batched(Protocol):
    """What drafts for several sequences in one pass."""

    def draw(self, sequences: Seq[Sequence], shapes: Seq[Shape]) -> list[TokenTree]:
        """Grow a tree for each."""
        ...


def in_company(drafter: Batched, sequences: Seq[Sequence], shapes: Seq[Shape]) -> list[TokenTree]:
    """Draft for all in one pass, but for those whose answer a seed is to fix: they go alone.

    The last bits of a q depend on who shares the pass, and with them, once in a great while, the answer.
    """
    trees: dict[int, TokenTree] = {}
    together = [i for i, sequence in enumerate(sequences) if not sequence.reproducible]
    alone = [[i] for i, sequence in enumerate(sequences) if sequence.reproducible]
    for group in [together, *alone] if together else alone:
        found = drafter.draw([sequences[i] for i in group], [shapes[i] for i in group])
        trees.update(zip(group, found, strict=True))
    return [trees[i] for i in range(len(sequences))]


def fitted(shape: Shape, depth: int, room: int) -> Shape:
    """Return a shape no deeper than allowed; a chain where a tree's growth would need more room."""
    shape = within(shape, depth, max(size(shape), depth))
    most = size(shape) if isinstance(shape, tuple) else BREADTH * len(shape)
    return shape if most <= room else chain(min(len(shape), room))
