"""The rows that one slot has in a forward pass: new tokens and a tree of drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST
from specclient_local.request.token_tree import TokenTree

MAX_PASS_ROWS = 256
"""Maximum rows of one pass. Bounds the activation memory of a prefill."""

EMPTY_TREE = TokenTree()
"""A tree without nodes, shared by all inputs that verify nothing. Do not add to it."""


@dataclass(frozen=True, slots=True)
class SlotInput:
    """The input of one slot in a pass.

    Attributes:
        slot: index of the slot whose KV cache is extended.
        tokens: ids that are not in the cache yet; the last one is the root of ``tree``.
        tree: drafted tokens below the root.
        every: return logits after each of ``tokens``, not only after the root and the nodes.
        held: number of leading nodes of ``tree`` that are in the cache already. If ``tokens`` is empty,
            the root is in the cache as well.
    """

    slot: int
    tokens: Sequence[int]
    tree: TokenTree = EMPTY_TREE
    every: bool = False
    held: int = 0

    @property
    def rows(self) -> int:
        """Number of rows in the pass."""
        return len(self.tokens) + len(self.tree.tokens) - self.held

    @property
    def unread(self) -> int:
        """Number of leading rows whose logits are not wanted."""
        return 0 if self.every or not self.tokens else len(self.tokens) - 1


def shared_passes(rows: Sequence[int], most: int) -> list[list[int]]:
    """Return which inputs go into which pass, given each input's rows; see
    :meth:`DecoderRunner.score_all`.
    """
    passes: list[list[int]] = []
    shared: list[int] = []
    left = 0
    for i, count in enumerate(rows):
        if count > MAX_ROWS_PER_REQUEST:
            passes.append([i])
            continue
        if count > left:
            shared, left = [], most
            passes.append(shared)
        shared.append(i)
        left -= count
    return passes
