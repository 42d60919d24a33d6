"""Functions of rows whose results do not depend on the other rows of a pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specclient_local.model.linear_kernels import LinearKernel

Project = Callable[[LinearKernel, Tensor], Tensor]
"""Runs a projection's kernel on rows ``[N, in]``."""

_VECTOR = 64
"""Elements that the library's vectorised loops divide evenly, whatever the instruction set."""


def by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return a function of each element of ``[N, width]``, with the same bits as for each row alone.

    The library computes the last elements of a contiguous block by other instructions than the ones before,
    so that an element's last bits may depend on the number of rows if a row ends within a vector.
    """
    if x.shape[-1] % _VECTOR == 0 or len(x) <= 1 or x.device.type != "cpu":
        return function(x)
    return torch.stack([function(row) for row in x])
