"""Turn what a draft says after each guess into the next level of guesses, of widths given or grown.

Widths: siblings drawn without replacement, as in SpecInfer (arXiv 2305.09781 §3) with the q that is true
for it; at temperature 0 the likeliest. Grown: EAGLE-2 (arXiv 2406.16858 §4): of each level the guesses
with the highest product of probabilities down from the root are expanded, and of all guesses the highest
are kept. Those are picked, not drawn, at any temperature: their q is one-hot.
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
"""Guesses of a level that a grown tree expands, and guesses below each."""


class TreeGrowth(Protocol):
    """A tree while it grows, level by level.

    Attributes:
        scored: the guesses that have gone, or are next to go, through the draft; parents first.
    """

    scored: TokenTree

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        ...

    def grow(self, logits: Tensor, laws: Seq[Distribution], nodes: Seq[int], random: RandomStream) -> None:
        """Add guesses below some nodes.

        Args:
            logits: ``[N, V]`` after each, as the request's rules have them.
            laws: ``[N]`` what the request samples from there.
            nodes: ``[N]`` which, ``ROOT`` for the first call, then what was added to ``scored``.
            random: the request's.
        """
        ...

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the tree, and for each of its nodes which it is in ``scored``."""
        ...


def growth(shape: DraftShape) -> TreeGrowth:
    """Return what grows a tree of a shape."""
    if isinstance(shape, GrownTree):
        return BestFirstGrowth(shape)
    return LevelGrowth(shape if isinstance(shape, tuple) else (1,) * len(shape))


class LevelGrowth:
    """So many guesses below each guess, a width for each depth; widths of one make a chain."""

    def __init__(self, widths: TreeWidths) -> None:
        self.scored = TokenTree()
        self._left = list(reversed(widths))

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        return bool(self._left)

    def grow(self, logits: Tensor, laws: Seq[Distribution], nodes: Seq[int], random: RandomStream) -> None:
        """Add the next width's guesses below some nodes; see :class:`TreeGrowth`."""
        width = self._left.pop()
        likeliest = None
        if width > 1 and isinstance(laws[0], int):
            likeliest = logits.topk(min(width, logits.shape[-1]), dim=-1).indices.tolist()
        for i, (node, q) in enumerate(zip(nodes, laws, strict=True)):
            if likeliest is not None:
                for token in likeliest[i]:
                    self.scored.add(node, token)
            elif width == 1:
                self.scored.add(node, random.draw(q), q)
            else:
                self.scored.branch(node, _drawn(q, width, random), q)

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the tree, and for each of its nodes which it is in ``scored``: the same."""
        return self.scored, list(range(len(self.scored)))


def _drawn(q: Distribution, width: int, random: RandomStream) -> list[int]:
    """Draw tokens without replacement, fewer where nothing is left to draw."""
    tokens: list[int] = []
    left: Distribution | None = q
    while left is not None:
        tokens.append(random.draw(left))
        left = without_token(left, tokens[-1]) if len(tokens) < width else None
    return tokens


@dataclass(slots=True)
class TreeCandidate:
    """A guess that may or may not be kept.

    Attributes:
        parent: its index among the guesses.
        value: product of the draft's probabilities from the root down to it.
        scored: its index in the scored tree, once it is expanded.
    """

    token: int
    parent: int
    value: float
    scored: int | None = None


class BestFirstGrowth:
    """The likeliest guesses, found by expanding the likeliest of each level."""

    def __init__(self, shape: GrownTree) -> None:
        self.scored = TokenTree()
        self._guesses: list[TreeCandidate] = []
        self._expanded: dict[int, int] = {}
        self._nodes = shape.nodes
        self._depth = shape.depth

    @property
    def going(self) -> bool:
        """Whether another level is wanted."""
        return self._depth > 0

    def grow(self, logits: Tensor, laws: Seq[Distribution], nodes: Seq[int], random: RandomStream) -> None:  # noqa: ARG002
        """Add the likeliest tokens below nodes, and expand the best of them next; see :class:`TreeGrowth`."""
        self._depth -= 1
        first = len(self._guesses)
        tokens, shares = _likeliest(logits, laws)
        for node, below, share in zip(nodes, tokens, shares, strict=True):
            parent = self._expanded.get(node, ROOT)
            value = 1.0 if parent == ROOT else self._guesses[parent].value
            self._guesses += [
                TreeCandidate(t, parent, value * s) for t, s in zip(below, share, strict=True) if s > 0.0
            ]
        if not self.going:
            return
        level = sorted(range(first, len(self._guesses)), key=lambda i: -self._guesses[i].value)
        chosen = set(self._kept())
        for i in level[:GROWN_TREE_BREADTH]:
            if i not in chosen:
                continue  # it is not kept, and nothing below it could be
            guess = self._guesses[i]
            above = ROOT if guess.parent == ROOT else self._guesses[guess.parent].scored
            assert above is not None
            guess.scored = self.scored.add(above, guess.token)
            self._expanded[guess.scored] = i

    def finish(self) -> tuple[TokenTree, list[int | None]]:
        """Return the tree of the likeliest guesses, and for each which it is in ``scored``, if any."""
        tree, scored = TokenTree(), []
        place = {ROOT: ROOT}
        for i in self._kept():
            guess = self._guesses[i]
            place[i] = tree.add(place[guess.parent], guess.token)
            scored.append(guess.scored)
        return tree, scored

    def _kept(self) -> list[int]:
        """Return the likeliest guesses so far, in the order they were made: a guess after its parent."""
        # Sorting is stable: of equal ones the parent, made earlier, comes first.
        return sorted(sorted(range(len(self._guesses)), key=lambda i: -self._guesses[i].value)[: self._nodes])


def sparse_tree(rows: Tensor, shape: GrownTree) -> TokenTree:
    """Return the likeliest guesses where what is said of a level is the same below all of the one before.

    So they are found without looking at others, likeliest first: after a guess come its next sibling and its
    first child. Medusa (arXiv 2401.10774 §2.3.3) lays such a tree out once for all; here each place has one.

    Args:
        rows: ``[levels, V]`` logits.
        shape: how deep, and how many.
    """
    tree = TokenTree()
    if not (rows := rows[: shape.depth]).numel() or rows.isnan().any():
        return tree
    best = torch.log_softmax(rows.float(), dim=-1).topk(min(shape.nodes, rows.shape[-1]), dim=-1)
    tokens, shares = best.indices.tolist(), best.values.tolist()
    # Of each candidate: its value with the sign turned, a number against ties, parent, level, rank.
    heap = [(-shares[0][0], 0, ROOT, 0, 0)]
    made = 0
    while heap and len(tree) < shape.nodes:
        turned, _, parent, level, rank = heapq.heappop(heap)
        if math.isinf(turned):
            break
        node, own = tree.add(parent, tokens[level][rank]), shares[level][rank]
        if rank + 1 < len(tokens[level]):
            heapq.heappush(heap, (turned + own - shares[level][rank + 1], made + 1, parent, level, rank + 1))
        if level + 1 < len(tokens):
            heapq.heappush(heap, (turned - shares[level + 1][0], made + 2, node, level + 1, 0))
        made += 2
    return tree


def _likeliest(logits: Tensor, laws: Seq[Distribution]) -> tuple[list[list[int]], list[list[float]]]:
    """Return the likeliest tokens of each row and their probabilities, at temperature 0 of the softmax."""
    if isinstance(laws[0], int):
        shares = torch.softmax(to_float64(logits), dim=-1)
    else:
        shares = torch.stack([torch.from_numpy(law) for law in laws if not isinstance(law, int)])
    best = shares.topk(min(GROWN_TREE_BREADTH, shares.shape[-1]), dim=-1)
    return best.indices.tolist(), best.values.tolist()
