"""Turn running sequences into guesses at what follows: the protocol every drafter speaks."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

TreeWidths = tuple[int, ...]
"""How many guesses stand below each guess, a depth each; ones make a chain, none an empty draft."""


@dataclass(frozen=True, slots=True)
class GrownTree:
    """A tree that grows where the draft is least unsure.

    Attributes:
        depth: most levels.
        nodes: guesses kept, the likeliest.
    """

    depth: int
    nodes: int

    def __len__(self) -> int:
        return self.depth


@dataclass(frozen=True, slots=True)
class DrafterChosenChain:
    """A chain whose drafter knows best how far it goes.

    Attributes:
        depth: most levels.
        worth: how many levels pay, if each guess is kept with a probability.
    """

    depth: int
    worth: Callable[[float], int]

    def __len__(self) -> int:
        return self.depth


@dataclass(frozen=True, slots=True)
class UnionShape:
    """What several drafters do at once.

    Attributes:
        each: what each draft model makes.
        lookup: what the look-up makes.
        drafts: how many draft models there are.
    """

    each: DraftShape
    lookup: DraftShape
    drafts: int

    def __len__(self) -> int:
        return max(len(self.each), len(self.lookup))


DraftShape = TreeWidths | GrownTree | DrafterChosenChain | UnionShape
"""What a draft may be; its ``len`` is its depth. A drafter that knows only chains reads nothing else."""


class Drafter(Protocol):
    """Proposes trees, and says of each node which distribution it was truly drawn from.

    A drafter keeps its own state by :attr:`Sequence.slot`. The calls of one sequence come in the order
    ``begin``+, (``propose``, ``commit``)*, ``end``; those of several sequences interleave.
    """

    def begin(self, sequence: Sequence) -> bool:
        """Prepare for a sequence, at most one chunk of its prompt a call; return whether all is ready.

        Called until it is, in turn with the target's own chunks; the prompt is ``sequence.tokens``.
        """
        ...

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Guess for each sequence what may follow its last token; smaller and empty trees are allowed."""
        ...

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of the last proposal the target accepted."""
        ...

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may then be assigned to another sequence."""
        ...


def chain(length: int) -> TreeWidths:
    """Return the shape of a chain."""
    return (1,) * length


def shape_size(shape: DraftShape) -> int:
    """Return how many guesses the largest tree of a shape has."""
    if isinstance(shape, UnionShape):
        return shape.drafts * shape_size(shape.each) + shape_size(shape.lookup)
    if isinstance(shape, GrownTree):
        return shape.nodes
    if isinstance(shape, DrafterChosenChain):
        return shape.depth
    level, nodes = 1, 0
    for width in shape:
        level *= width
        nodes += level
    return nodes


def clip_shape(shape: DraftShape, depth: int, nodes: int) -> DraftShape:
    """Return a shape no deeper and no larger than allowed; widths that are too many give way to a chain."""
    if isinstance(shape, UnionShape):
        if shape_size(shape) > nodes:
            nodes //= shape.drafts + 1
        return UnionShape(
            clip_shape(shape.each, depth, nodes), clip_shape(shape.lookup, depth, nodes), shape.drafts
        )
    if isinstance(shape, GrownTree):
        depth = min(shape.depth, depth, nodes)
        return GrownTree(depth, min(shape.nodes, nodes))
    if isinstance(shape, DrafterChosenChain):
        return DrafterChosenChain(min(shape.depth, depth, nodes), shape.worth)
    shape = shape[:depth]
    return shape if shape_size(shape) <= nodes else chain(min(len(shape), nodes))
