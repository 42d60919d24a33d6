"""Growth of draft trees, level by level: by given widths, or by expanding the most likely nodes.

By widths: siblings are drawn without replacement (SpecInfer, arXiv 2305.09781 §3), each with the q from which
it was drawn; at temperature 0 they are the most likely tokens. Grown (EAGLE-2, arXiv 2406.16858 §4): on each
level the nodes with the highest product of probabilities from the root are expanded, and of all nodes those
with the highest product are kept. They are picked, not drawn, at any temperature, so their q is one-hot.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specclient_local.drafting.drafter import DraftShape, GrownTree, TreeWidths
from specclient_local.model.sampling import to_float64
from specclient_local.request.sequence import RandomStream
from specclient_local.request.token_tree import ROOT, Distribution, TokenTree, without_token

GROWN_TREE_BREADTH = 4
"""Number of nodes per level that a grown tree expands, and number of children of each."""


class TreeGrowth(Protocol):
    """A tree while it grows.

    Attributes:
        scored: the nodes that the draft has scored or scores next; parents precede children.
    """

    scored: TokenTree

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        ...

    def grow(
        self, logits: Tensor, distributions: Seq[Distribution], nodes: Seq[int], random: RandomStream
    ) -> None:
        """Add children to some nodes.

        Args:
            logits: ``[N, V]`` after each node, processed.
            distributions: ``[N]`` the distributions from which the request samples there.
            nodes: ``[N]`` indices in ``scored``; ``ROOT`` in the first call.
            random: the request's random stream.
        """
        ...

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the tree, and the index in ``scored`` of each of its nodes (None if it was not scored)."""
        ...


def tree_growth_for(shape: DraftShape) -> TreeGrowth:
    """Return the growth of a tree of a shape."""
    if isinstance(shape, GrownTree):
        return BestFirstGrowth(shape)
    return LevelGrowth(shape if isinstance(shape, tuple) else (1,) * len(shape))


class LevelGrowth:
    """A tree with given widths, one per depth."""

    def __init__(self, widths: TreeWidths) -> None:
        self.scored = TokenTree()
        self._left = list(reversed(widths))

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        return bool(self._left)

    def grow(
        self, logits: Tensor, distributions: Seq[Distribution], nodes: Seq[int], random: RandomStream
    ) -> None:
        """Add the next width's children below some nodes; see :class:`TreeGrowth`."""
        width = self._left.pop()
        likeliest = None
        if width > 1 and isinstance(distributions[0], int):
            likeliest = logits.topk(min(width, logits.shape[-1]), dim=-1).indices.tolist()
        for i, (node, q) in enumerate(zip(nodes, distributions, strict=True)):
            if likeliest is not None:
                for token in likeliest[i]:
                    self.scored.add(node, token)
            elif width == 1:
                self.scored.add(node, random.draw(q), q)
            else:
                self.scored.branch(node, _drawn(q, width, random), q)

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the tree, and each node's index in ``scored``, which is the same."""
        return self.scored, list(range(len(self.scored)))


def _drawn(q: Distribution, width: int, random: RandomStream) -> list[int]:
    """Draw up to ``width`` tokens without replacement; fewer if q leaves nothing to draw."""
    tokens: list[int] = []
    left: Distribution | None = q
    while left is not None:
        tokens.append(random.draw(left))
        left = without_token(left, tokens[-1]) if len(tokens) < width else None
    return tokens


@dataclass(slots=True)
class TreeCandidate:
    """A node that may be kept.

    Attributes:
        token: its id.
        parent: index of its parent among the candidates, or ``ROOT``.
        value: product of the draft's probabilities from the root to it.
        scored: its index in the scored tree, once it is expanded.
    """

    token: int
    parent: int
    value: float
    scored: int | None = None


class BestFirstGrowth:
    """A tree of the most likely nodes, found by expanding the most likely nodes of each level."""

    def __init__(self, shape: GrownTree) -> None:
        self.scored = TokenTree()
        self._candidates: list[TreeCandidate] = []
        self._expanded: dict[int, int] = {}
        self._nodes = shape.nodes
        self._depth = shape.depth

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        return self._depth > 0

    def grow(
        self,
        logits: Tensor,
        distributions: Seq[Distribution],
        nodes: Seq[int],
        random: RandomStream,  # noqa: ARG002 - nodes are picked, not drawn
    ) -> None:
        """Add the most likely tokens below nodes, and expand the best next; see :class:`TreeGrowth`."""
        self._depth -= 1
        first = len(self._candidates)
        tokens, shares = _likeliest(logits, distributions)
        for node, below, share in zip(nodes, tokens, shares, strict=True):
            parent = self._expanded.get(node, ROOT)
            value = 1.0 if parent == ROOT else self._candidates[parent].value
            self._candidates += [
                TreeCandidate(t, parent, value * s) for t, s in zip(below, share, strict=True) if s > 0.0
            ]
        if not self.going:
            return
        level = sorted(range(first, len(self._candidates)), key=lambda i: -self._candidates[i].value)
        chosen = set(self._kept())
        for i in level[:GROWN_TREE_BREADTH]:
            if i not in chosen:
                continue  # not kept, so none of its descendants can be
            guess = self._candidates[i]
            above = ROOT if guess.parent == ROOT else self._candidates[guess.parent].scored
            assert above is not None
            guess.scored = self.scored.add(above, guess.token)
            self._expanded[guess.scored] = i

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the most likely nodes as a tree, and each one's index in ``scored`` (None if not scored)."""
        tree, scored = TokenTree(), []
        place = {ROOT: ROOT}
        for i in self._kept():
            guess = self._candidates[i]
            place[i] = tree.add(place[guess.parent], guess.token)
            scored.append(guess.scored)
        return tree, scored

    def _kept(self) -> list[int]:
        """Return the indices of the most likely candidates so far, parents before children."""
        # The sort is stable, so of equal values the parent, which was added earlier, comes first.
        return sorted(
            sorted(range(len(self._candidates)), key=lambda i: -self._candidates[i].value)[: self._nodes]
        )


def sparse_tree(rows: Tensor, shape: GrownTree) -> TokenTree:
    """Return the most likely nodes if the distribution of a level does not depend on the nodes above it.

    A best-first search finds them in order of likelihood: after a node come its next sibling and its first
    child. Medusa (arXiv 2401.10774 §2.3.3) fixes such a tree in advance; here it is built for each position.

    Args:
        rows: ``[levels, V]`` logits.
        shape: depth and number of nodes.
    """
    tree = TokenTree()
    if not (rows := rows[: shape.depth]).numel() or rows.isnan().any():
        return tree
    best = torch.log_softmax(rows.float(), dim=-1).topk(min(shape.nodes, rows.shape[-1]), dim=-1)
    tokens, shares = best.indices.tolist(), best.values.tolist()
    # Each entry: negated log-probability, a counter that breaks ties, parent, level, rank.
    heap = [(-shares[0][0], 0, ROOT, 0, 0)]
    made = 0
    while heap and len(tree) < shape.nodes:
        negated, _, parent, level, rank = heapq.heappop(heap)
        if math.isinf(negated):
            break
        node, own = tree.add(parent, tokens[level][rank]), shares[level][rank]
        if rank + 1 < len(tokens[level]):
            heapq.heappush(heap, (negated + own - shares[level][rank + 1], made + 1, parent, level, rank + 1))
        if level + 1 < len(tokens):
            heapq.heappush(heap, (negated - shares[level + 1][0], made + 2, node, level + 1, 0))
        made += 2
    return tree


def _likeliest(logits: Tensor, distributions: Seq[Distribution]) -> tuple[list[list[int]], list[list[float]]]:
    """Return each row's most likely tokens and their probabilities; at temperature 0 those of the softmax."""
    if isinstance(distributions[0], int):
        shares = torch.softmax(to_float64(logits), dim=-1)
    else:
        shares = torch.stack(
            [
                torch.from_numpy(distribution)
                for distribution in distributions
                if not isinstance(distribution, int)
            ]
        )
    best = shares.topk(min(GROWN_TREE_BREADTH, shares.shape[-1]), dim=-1)
    return best.indices.tolist(), best.values.tolist()
