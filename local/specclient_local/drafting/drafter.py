"""The protocol of drafters, and the shapes that a draft can have."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

TreeWidths = tuple[int, ...]
"""Number of nodes below each node, one entry per depth. Ones make a chain; an empty tuple is an empty draft.
"""


@dataclass(frozen=True, slots=True)
class GrownTree:
    """A tree in which the most likely nodes are expanded (EAGLE-2, arXiv 2406.16858).

    Attributes:
        depth: maximum number of levels.
        nodes: number of nodes to keep, the most likely ones.
    """

    depth: int
    nodes: int

    def __len__(self) -> int:
        return self.depth


@dataclass(frozen=True, slots=True)
class DrafterChosenChain:
    """A chain whose length the drafter chooses.

    Attributes:
        depth: maximum number of tokens.
        worth: returns how many tokens pay off, given the probability that each is accepted.
    """

    depth: int
    worth: Callable[[float], int]

    def __len__(self) -> int:
        return self.depth


@dataclass(frozen=True, slots=True)
class UnionShape:
    """The shapes of several drafters that draft together.

    Attributes:
        each: shape for each draft model.
        lookup: shape for the n-gram lookup.
        drafts: number of draft models.
    """

    each: DraftShape
    lookup: DraftShape
    drafts: int

    def __len__(self) -> int:
        return max(len(self.each), len(self.lookup))


DraftShape = TreeWidths | GrownTree | DrafterChosenChain | UnionShape
"""The shape of a draft. Its ``len`` is its depth; a drafter that only drafts chains uses nothing else."""


DraftLength = Literal["adaptive", "doubling", "own"]
"""How the length of a draft is chosen if the request does not set it.

``adaptive``: by measured acceptance and cost. ``doubling``: 2K + 1 tokens after an accepted draft of K, at
most ``MAX_PREDICTED_LENGTH`` of ``request/params.py``, and few after a rejected one; for drafts that cost
nothing and are right or wrong for long stretches. ``own``: by the drafter, which receives a
:class:`DrafterChosenChain`.
"""


class Drafter(Protocol):
    """Proposes trees of tokens, each with the distribution from which it was drawn.

    To add a drafter: subclass this protocol, set the class attributes whose defaults do not fit, add its name
    to ``EngineMethod`` in ``request/params.py``, and create it in ``drafting/modelless.py``, or in
    ``loading/drafter_set.py`` if it needs a model. Answers stay exact if ``q`` of every node is the
    distribution from which it was drawn, or None (one-hot) if it was picked. If the shape is a chain, whether
    the draft is a chain must not depend on drawn tokens, and where it ends only on those before.

    State is kept by :attr:`Sequence.cache_slot`. The calls of one sequence come in the order ``begin``+,
    (``propose``, ``commit``)*, ``end``; those of several sequences interleave.

    Attributes:
        length: how the length of its drafts is chosen.
        adaptive_trees: whether an ``adaptive`` length may become a tree. False if it only drafts chains.
        device_rounds: whether rounds on the device can verify its drafts. They must be chains of picked
            tokens that the host proposes without a pass of a model.
    """

    length: ClassVar[DraftLength] = "adaptive"
    adaptive_trees: ClassVar[bool] = False
    device_rounds: ClassVar[bool] = False

    def begin(self, sequence: Sequence) -> bool:
        """Prepare for a sequence, at most one chunk of its prompt per call; return whether it is ready.

        Called until it returns True, alternating with the target's own chunks. The prompt is
        ``sequence.tokens``.
        """
        ...

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Propose a tree below each sequence's last token. It may be smaller than its shape, or empty.

        Args:
            sequences: their ``tokens`` end with the token below which the tree is.
            shapes: largest tree of each sequence, which fits the rest of its answer and context.
        """
        ...

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Record which nodes of the last proposed tree the target accepted: ``path``, first level first."""
        ...

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence. Its slot may then be assigned to another one."""
        ...


def chain(length: int) -> TreeWidths:
    """Return the shape of a chain of ``length`` tokens."""
    return (1,) * length


def is_chain_shape(shape: DraftShape) -> bool:
    """Return whether a draft of a shape is a chain whatever tokens are drawn.

    A grown tree and a union can be chains, too, but whether they are depends on their tokens.
    """
    return isinstance(shape, DrafterChosenChain) or (isinstance(shape, tuple) and shape == chain(len(shape)))


def shape_size(shape: DraftShape) -> int:
    """Return the number of nodes of the largest tree of a shape."""
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
    """Return a shape with at most ``depth`` levels and ``nodes`` nodes; a tree that is too large becomes a
    chain.
    """
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
