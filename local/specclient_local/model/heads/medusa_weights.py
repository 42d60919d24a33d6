"""The shape and the parameters of a set of Medusa heads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """What a set of Medusa heads is like.

    Attributes:
        heads: how many.
        blocks: residual blocks of each.
        hidden: width of the target's hidden states.
        vocab: the target's tokens.
        shares_head: whether all read tokens by the target's own head instead of one each.
    """

    heads: int
    blocks: int
    hidden: int
    vocab: int
    shares_head: bool

    @property
    def parameters(self) -> int:
        """Numbers in their matrices."""
        own = 0 if self.shares_head else self.vocab
        return self.heads * self.hidden * (self.blocks * self.hidden + own)


@dataclass(slots=True)
class MedusaWeights:
    """Their parameters.

    Attributes:
        blocks: ``[heads][blocks]`` weight ``[hidden, hidden]`` and bias ``[hidden]``.
        heads: ``[V, hidden]`` of each; none where they share the target's.
    """

    blocks: list[list[tuple[Tensor, Tensor]]]
    heads: list[Tensor]
