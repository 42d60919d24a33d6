"""Turn several drafters' trees into one, in which each guess keeps the q it was drawn from.

At each place the drafters' guesses stand one after another, draft models before the look-up. Guesses of
different drafters are drawn independently, so the verification's walk holds for them as it does for one
drafter's siblings: each is tried against its own q. A picked guess (one-hot q) that equals an earlier
sibling is that sibling: refused, its token has no probability left, and kept, what is guessed below either
one may be guessed below both. Drawn guesses that are equal stay apart: each has a chance of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from specclient_local.drafting.drafter import Drafter, DraftShape, UnionShape
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree


class UnionDrafter:
    """Drafts with several drafters at once, all of whom it owns.

    Args:
        models: draft models.
        lookup: beside them.
    """

    def __init__(self, models: Seq[Drafter], lookup: NgramDrafter) -> None:
        self.models = tuple(models)
        self._all: tuple[Drafter, ...] = (*models, lookup)
        self._lookup = lookup
        self._parts: dict[int, list[UnionMember]] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Let each read a chunk of the prompt."""
        ready = [drafter.begin(sequence) for drafter in self._all]
        return all(ready)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Let each propose, and join what they propose."""
        trees: list[list[TokenTree]] = [[] for _ in sequences]
        for drafter in self._all:
            own = [_part(shape, lookup=drafter is self._lookup) for shape in shapes]
            for found, tree in zip(trees, drafter.propose(sequences, own), strict=True):
                found.append(tree)
        joined: list[TokenTree] = []
        for sequence, found in zip(sequences, trees, strict=True):
            union = TokenTree()
            members = [UnionMember(tree, add_to_union(union, tree)) for tree in found]
            self._parts[sequence.cache_slot] = members
            joined.append(union)
        return joined

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:  # noqa: ARG002
        """Tell each which of its own guesses were accepted."""
        parts = self._parts.pop(sequence.cache_slot, [])
        for drafter, part in zip(self._all, parts, strict=False):
            drafter.commit(sequence, part.tree, part.path(path))

    def end(self, sequence: Sequence) -> None:
        """Let each forget it."""
        self._parts.pop(sequence.cache_slot, None)
        for drafter in self._all:
            drafter.end(sequence)


class UnionMember:
    """One drafter's tree, and where its nodes are in the union.

    Args:
        tree: as proposed.
        place: ``[N]`` each node's index in the union.
    """

    def __init__(self, tree: TokenTree, place: Seq[int]) -> None:
        self.tree = tree
        self._own: Mapping[int, int] = {there: node for node, there in enumerate(place)}

    def path(self, path: Seq[int]) -> list[int]:
        """Return the part of a path down the union, from the first level on, that is this tree's own."""
        own: list[int] = []
        for node in path:
            if node not in self._own:
                break
            own.append(self._own[node])
        return own


def add_to_union(union: TokenTree, tree: TokenTree) -> list[int]:
    """Add a tree's nodes to a union, picked ones that are there already apart; return where each is."""
    place = {ROOT: ROOT}
    for node, (parent, token, q) in enumerate(zip(tree.parents, tree.tokens, tree.q, strict=True)):
        above = place[parent]
        there = _standing(union, above, token) if _picked(q, token) else None
        place[node] = union.add(above, token, q) if there is None else there
    return [place[node] for node in range(len(tree))]


def _standing(union: TokenTree, above: int, token: int) -> int | None:
    return next((node for node in union.children(above) if union.tokens[node] == token), None)


def _picked(q: Distribution | None, token: int) -> bool:
    return q is None or (isinstance(q, int) and q == token)


def _part(shape: DraftShape, *, lookup: bool) -> DraftShape:
    """Return one drafter's share of a shape."""
    if isinstance(shape, UnionShape):
        return shape.lookup if lookup else shape.each
    return shape
