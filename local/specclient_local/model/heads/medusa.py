"""Medusa heads: logits of several future tokens at once from the target's last hidden state.

Medusa (arXiv 2401.10774 §2.1.1): head k computes from the hidden state at a position, through residual
blocks, the logits of the token k + 2 positions later. The target itself predicts the next token.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.heads.kernels import HeadKernels
from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.linear_kernels import LinearKernel


class MedusaHeads:
    """Medusa heads as a function of hidden states.

    Args:
        shape: their shape.
        weights: their parameters.
        lent: the target's shared weights.
        kernels: the kernels to compute with.
    """

    def __init__(
        self,
        shape: MedusaShape,
        weights: MedusaWeights,
        lent: SharedTargetWeights,
        kernels: HeadKernels | None = None,
    ) -> None:
        self.shape = shape
        k = kernels or HeadKernels()
        self._last_norm = k.norm(lent.norm, lent.eps)
        self._blocks: list[list[LinearKernel]] = [
            [k.linear(w, b) for w, b in head] for head in weights.blocks
        ]
        own = [k.linear(head, None) for head in weights.heads]
        self._shared = None if own else k.linear(lent.head, None)
        self._own = own

    def read(self, features: Tensor) -> Tensor:
        """Return the input of the heads from the last layer's hidden states ``[..., 1, hidden]``."""
        return self._last_norm(features[..., 0, :])

    def state(self, head: int, states: Tensor) -> Tensor:
        """Return one head's state ``[..., hidden]`` from states ``[..., hidden]``, before its output head."""
        for block in self._blocks[head]:
            states = states + F.silu(block(states))
        return states

    def logits(self, states: Tensor, heads: int) -> Tensor:
        """Return the first ``heads`` heads' logits after states ``[..., hidden]``: ``[..., heads, V]``."""
        rows = [self.state(head, states) for head in range(heads)]
        if self._shared is None:
            return torch.stack([head(x) for head, x in zip(self._own, rows, strict=False)], dim=-2)
        together = self._shared(torch.stack(rows, dim=-2).flatten(0, -2))
        return together.view(*states.shape[:-1], heads, self.shape.vocab)
