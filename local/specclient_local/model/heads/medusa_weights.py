"""The shape and the parameters of a set of Medusa heads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """The shape of a set of Medusa heads.

    Attributes:
        heads: number of heads.
        blocks: number of residual blocks of each.
        hidden: width of the target's hidden states.
        vocab: number of the target's tokens.
        shares_head: whether all heads use the target's output head instead of one each.
    """

    heads: int
    blocks: int
    hidden: int
    vocab: int
    shares_head: bool

    @property
    def parameters(self) -> int:
        """Number of elements of their matrices."""
        own = 0 if self.shares_head else self.vocab
        return self.heads * self.hidden * (self.blocks * self.hidden + own)


@dataclass(slots=True)
class MedusaWeights:
    """The parameters of a set of Medusa heads.

    Attributes:
        blocks: ``[heads][blocks]`` weight ``[hidden, hidden]`` and bias ``[hidden]``.
        heads: output head ``[V, hidden]`` of each; empty if they share the target's.
    """

    blocks: list[list[tuple[Tensor, Tensor]]]
    heads: list[Tensor]
