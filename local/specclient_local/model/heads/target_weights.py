"""The weights of a target model that its draft heads share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SharedTargetWeights:
    """The target's weights that draft heads use without copying them.

    Attributes:
        embedding: ``[V, hidden]`` token embedding.
        norm: ``[hidden]`` weight of the last RMS norm.
        head: ``[V, hidden]`` output head.
        eps: epsilon of the norm.
    """

    embedding: Tensor
    norm: Tensor
    head: Tensor
    eps: float
