"""Turn running sequences into guesses at what follows: the protocol every drafter speaks."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

from specclient_local.sequence import Sequence
from specclient_local.tree import TokenTree


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

    def propose(self, sequences: Seq[Sequence], lengths: Seq[int]) -> list[TokenTree]:
        """Guess for each sequence up to ``length`` levels below its last token; empty trees are allowed."""
        ...

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Learn which nodes of the last proposal the target accepted."""
        ...

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may be granted to another."""
        ...
