"""Turn draft tokens into one tree of guesses, each with the distribution it was truly drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Distribution = int | NDArray[np.float64]
"""Probabilities ``[V]`` that sum to 1, or the one token that has all of it (one-hot)."""

ROOT = -1


def probability_of(distribution: Distribution, token: int) -> float:
    """Return the probability of a token."""
    if isinstance(distribution, int):
        return 1.0 if distribution == token else 0.0
    return float(distribution[token])


def without_token(q: Distribution, token: int) -> Distribution | None:
    """Return q given that the draw is not ``token``: what the next sibling is drawn from.

    None where nothing is left to draw.
    """
    if isinstance(q, int):
        return None if q == token else q
    rest = q.copy()
    rest[token] = 0.0
    total = rest.sum()
    return rest / total if total > 0.0 else None


class TokenTree:
    """Draft tokens below the last committed token, the root; parents come before children.

    A chain is a thin tree, plain decoding an empty one. Siblings stand in the order in which the
    verification tries them; equal siblings are kept apart, because each was drawn on its own.

    Attributes:
        tokens: ``[N]`` ids.
        parents: ``[N]`` index of each node's parent, ``ROOT`` (-1) for the first level.
        q: ``[N]`` the distribution each node was drawn from given its parent and its earlier siblings;
            None is one-hot: the node was not drawn but picked.
    """

    __slots__ = ("_children", "parents", "q", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.q: list[Distribution | None] = []
        self._children: dict[int, list[int]] = {}

    @classmethod
    def chain(cls, tokens: Sequence[int], q: Sequence[Distribution | None] | None = None) -> TokenTree:
        """Build the tree of one branch; without ``q`` every token was picked, not drawn."""
        tree, size = cls(), len(tokens)
        tree.tokens = [*tokens]
        tree.parents = [*range(ROOT, size - 1)]
        tree.q = [None] * size if q is None else [*q]
        tree._children = {i - 1: [i] for i in range(size)}
        return tree

    def add(self, parent: int, token: int, q: Distribution | None = None) -> int:
        """Hang one guess below ``parent`` and return its index.

        Siblings added one by one count as drawn independently, with replacement.
        """
        if not ROOT <= parent < len(self.tokens):
            raise ValueError(f"parent is {parent}; allowed is {ROOT} (the root) to {len(self.tokens) - 1}")
        self._children.setdefault(parent, []).append(len(self.tokens))
        self.tokens.append(token)
        self.parents.append(parent)
        self.q.append(q)
        return len(self.tokens) - 1

    def branch(self, parent: int, tokens: Sequence[int], q: Distribution) -> list[int]:
        """Hang siblings drawn one after another without replacement from ``q``.

        Each gets the q it was truly drawn from: what the earlier ones left, renormalised.
        """
        nodes: list[int] = []
        left: Distribution | None = q
        for i, token in enumerate(tokens):
            if i:
                left = None if left is None else without_token(left, tokens[i - 1])
            if left is None or probability_of(left, token) == 0.0:
                raise ValueError(f"token {token} cannot have been drawn: q leaves it no probability")
            nodes.append(self.add(parent, token, left))
        return nodes

    def children(self, node: int) -> Sequence[int]:
        """Return a node's children (``ROOT`` allowed) in the order they were added."""
        return self._children.get(node, ())

    def __len__(self) -> int:
        return len(self.tokens)

    def paths(self) -> list[list[int]]:
        """Return the tokens from the root to each node, ``[N + 1]``, the root's empty list first."""
        paths: list[list[int]] = [[]]
        for parent, token in zip(self.parents, self.tokens, strict=True):
            paths.append([*paths[parent + 1], token])
        return paths

    @property
    def is_chain(self) -> bool:
        """Whether each node is the only child of the node before it."""
        return self.parents == [*range(ROOT, len(self.parents) - 1)]

    @property
    def depth(self) -> int:
        """How far the farthest node is from the root."""
        return len(self.parents) if self.is_chain else max(self.depths(), default=0)

    def depths(self) -> list[int]:
        """Return each node's distance from the root, ``[N]``, the first level being 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def ancestors(self) -> NDArray[np.bool_]:
        """Return who sees whom among root and nodes, ``[N + 1, N + 1]``: row i its ancestors and itself.

        Row and column 0 are the root, i + 1 is node i (SpecInfer, arXiv 2305.09781 §4.2).
        """
        size = len(self.tokens) + 1
        seen = np.eye(size, dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            seen[node + 1] |= seen[parent + 1]
        return seen
