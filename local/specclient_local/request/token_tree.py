"""Drafted tokens as a tree whose nodes have the q they were drawn from (SpecInfer, arXiv 2305.09781)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Distribution = int | NDArray[np.float64]
"""Probabilities ``[V]`` that sum to 1, or for a one-hot distribution the token that has probability 1."""

ROOT = -1


def probability_of(distribution: Distribution, token: int) -> float:
    """Return the probability of a token."""
    if isinstance(distribution, int):
        return 1.0 if distribution == token else 0.0
    return float(distribution[token])


def without_token(q: Distribution, token: int) -> Distribution | None:
    """Return q conditioned on not drawing ``token``: the distribution from which the next sibling is drawn.

    Returns:
        The renormalised distribution, or None if ``token`` had all of the probability.
    """
    if isinstance(q, int):
        return None if q == token else q
    remaining = q.copy()
    remaining[token] = 0.0
    total = remaining.sum()
    return remaining / total if total > 0.0 else None


class TokenTree:
    """Draft tokens below the last committed token, the root. Parents precede their children.

    A chain is a tree of width 1, and plain decoding verifies an empty tree. Siblings are in the order in
    which verification tries them. Equal siblings stay separate nodes, because each was drawn on its own.

    Attributes:
        tokens: ``[N]`` ids.
        parents: ``[N]`` index of each node's parent; ``ROOT`` (-1) on the first level.
        q: ``[N]`` the distribution from which each node was drawn, given its parent and its earlier siblings.
            None is one-hot: the token was picked, not drawn.
    """

    __slots__ = ("_children", "parents", "q", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.q: list[Distribution | None] = []
        self._children: dict[int, list[int]] = {}

    @classmethod
    def chain(cls, tokens: Sequence[int], q: Sequence[Distribution | None] | None = None) -> TokenTree:
        """Build a chain. Without ``q`` every token counts as picked, not drawn."""
        tree, size = cls(), len(tokens)
        tree.tokens = [*tokens]
        tree.parents = [*range(ROOT, size - 1)]
        tree.q = [None] * size if q is None else [*q]
        tree._children = {i - 1: [i] for i in range(size)}
        return tree

    def add(self, parent: int, token: int, q: Distribution | None = None) -> int:
        """Add a node below ``parent`` and return its index.

        Siblings added one by one count as drawn independently, with replacement.

        Raises:
            ValueError: there is no such parent.
        """
        if not ROOT <= parent < len(self.tokens):
            raise ValueError(f"parent is {parent}; allowed is {ROOT} (the root) to {len(self.tokens) - 1}")
        self._children.setdefault(parent, []).append(len(self.tokens))
        self.tokens.append(token)
        self.parents.append(parent)
        self.q.append(q)
        return len(self.tokens) - 1

    def branch(self, parent: int, tokens: Sequence[int], q: Distribution) -> list[int]:
        """Add siblings that were drawn one after another without replacement from ``q``; return their
        indices.

        Each gets the distribution from which it was drawn: q without the earlier siblings, renormalised
        (SpecInfer, arXiv 2305.09781 §3).

        Raises:
            ValueError: a token has no probability at its turn.
        """
        nodes: list[int] = []
        remaining: Distribution | None = q
        for i, token in enumerate(tokens):
            if i:
                remaining = None if remaining is None else without_token(remaining, tokens[i - 1])
            if remaining is None or probability_of(remaining, token) == 0.0:
                raise ValueError(f"token {token} cannot have been drawn: q leaves it no probability")
            nodes.append(self.add(parent, token, remaining))
        return nodes

    def children(self, node: int) -> Sequence[int]:
        """Return a node's children (``ROOT`` allowed) in the order they were added."""
        return self._children.get(node, ())

    def __len__(self) -> int:
        return len(self.tokens)

    def paths(self) -> list[list[int]]:
        """Return the tokens from the root to each node, ``[N + 1]`` lists; the root's empty list is first."""
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
        """Distance of the deepest node from the root; 0 for an empty tree."""
        return len(self.parents) if self.is_chain else max(self.depths(), default=0)

    def depths(self) -> list[int]:
        """Return each node's distance from the root, ``[N]``; the first level is 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def ancestors(self) -> NDArray[np.bool_]:
        """Return the tree attention mask, ``[N + 1, N + 1]`` bool: row i is true for node i's ancestors and
        itself.

        Row and column 0 are the root, i + 1 is node i (SpecInfer, arXiv 2305.09781 §4.2).
        """
        size = len(self.tokens) + 1
        visible = np.eye(size, dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            visible[node + 1] |= visible[parent + 1]
        return visible
