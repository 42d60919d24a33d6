"""Several drafters at once: their trees are joined into one, in which each node keeps its own q.

The children of a node are in the order of the drafters, draft models before the n-gram lookup. Nodes
of different drafters are drawn independently, so verification tries each against its own q, as it does one
drafter's siblings (SpecInfer, arXiv 2305.09781). A picked node (one-hot q) that equals an earlier sibling is
merged with it, and if it is accepted, the children of both may follow. This is exact because the choice of a
node depends only on the nodes chosen before it, not on which are accepted. Equal drawn nodes stay separate,
because each has a chance of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from specclient_local.drafting.drafter import Drafter, DraftShape, UnionShape
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree


class UnionDrafter(Drafter):
    """Drafts with several drafters, which it owns.

    Args:
        models: draft models.
        lookup: the n-gram lookup.
    """

    def __init__(self, models: Seq[Drafter], lookup: NgramDrafter) -> None:
        self.models = tuple(models)
        self._all: tuple[Drafter, ...] = (*models, lookup)
        self._lookup = lookup
        self._members: dict[int, list[UnionMember]] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Let each drafter read a chunk of the prompt."""
        ready = [drafter.begin(sequence) for drafter in self._all]
        return all(ready)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Let each drafter propose trees, and join them."""
        trees: list[list[TokenTree]] = [[] for _ in sequences]
        for drafter in self._all:
            own = [_shape_for(shape, lookup=drafter is self._lookup) for shape in shapes]
            for found, tree in zip(trees, drafter.propose(sequences, own), strict=True):
                found.append(tree)
        joined: list[TokenTree] = []
        for sequence, found in zip(sequences, trees, strict=True):
            union = TokenTree()
            members = [UnionMember(tree, add_to_union(union, tree)) for tree in found]
            self._members[sequence.cache_slot] = members
            joined.append(union)
        return joined

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Tell each drafter which of its own nodes were accepted."""
        members = self._members.pop(sequence.cache_slot, [])
        for drafter, part in zip(self._all, members, strict=False):
            drafter.commit(sequence, part.tree, part.path(path))

    def end(self, sequence: Sequence) -> None:
        """Let each drafter forget the sequence."""
        self._members.pop(sequence.cache_slot, None)
        for drafter in self._all:
            drafter.end(sequence)


class UnionMember:
    """One drafter's tree, and the indices of its nodes in the union.

    Args:
        tree: the proposed tree.
        place: ``[N]`` index of each node in the union.
    """

    def __init__(self, tree: TokenTree, place: Seq[int]) -> None:
        self.tree = tree
        self._own: Mapping[int, int] = {there: node for node, there in enumerate(place)}

    def path(self, path: Seq[int]) -> list[int]:
        """Return the leading part of a path in the union whose nodes belong to this tree, as its own
        indices.
        """
        own: list[int] = []
        for node in path:
            if node not in self._own:
                break
            own.append(self._own[node])
        return own


def add_to_union(union: TokenTree, tree: TokenTree) -> list[int]:
    """Add a tree's nodes to a union, except picked ones that are there already; return each node's index."""
    place = {ROOT: ROOT}
    for node, (parent, token, q) in enumerate(zip(tree.parents, tree.tokens, tree.q, strict=True)):
        above = place[parent]
        there = _equal_child(union, above, token) if _picked(q, token) else None
        place[node] = union.add(above, token, q) if there is None else there
    return [place[node] for node in range(len(tree))]


def _equal_child(union: TokenTree, above: int, token: int) -> int | None:
    return next((node for node in union.children(above) if union.tokens[node] == token), None)


def _picked(q: Distribution | None, token: int) -> bool:
    return q is None or (isinstance(q, int) and q == token)


def _shape_for(shape: DraftShape, *, lookup: bool) -> DraftShape:
    """Return one drafter's part of a shape."""
    if isinstance(shape, UnionShape):
        return shape.lookup if lookup else shape.each
    return shape
