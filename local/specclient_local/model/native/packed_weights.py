"""Packing of weight matrices into the panels that compiled code reads, adjacent in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.native.huge_pages import large_pages
from specclient_local.model.native.structs import LinearStruct
from specclient_local.model.quantization import int8_parts

_WIDTH = 16
"""Outputs of a panel; ``W`` in ``matmul.h``."""

_GROUP = 4 * _WIDTH
"""Outputs of a group of four panels."""

GATES_PER_GROUP = 2 * _WIDTH
"""Gate outputs per group; as many ``up`` outputs follow them in the group."""

_LINE = 64
"""Bytes of a cache line."""

_KINDS = {torch.float32: 0, torch.int8: 1, torch.bfloat16: 2}
"""Numbers of element types in ``matmul.h``; sums are float32 for all of them."""


RowArrangement = Callable[[Tensor], Tensor]


def can_be_packed(weight: Tensor) -> bool:
    """Return whether a matrix can be packed: float32 or bfloat16 on a CPU, or quantised to int8."""
    if type(weight) is not Tensor:
        return int8_parts(weight) is not None
    return weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu"


class PackedWeights:
    """Packed matrices in huge pages, and the other tensors whose addresses compiled code holds.

    Args:
        matrices: ``[out, in]``, all matrices that will be passed to :meth:`linear`.

    Attributes:
        memory: memory of the panels.
        held: other tensors, kept alive for compiled code.
    """

    def __init__(self, matrices: Iterable[Tensor]) -> None:
        self.memory = large_pages(sum(_room(matrix) for matrix in matrices))
        self.held: list[Tensor] = []
        self._used = 0

    def linear(
        self, weight: Tensor, bias: Tensor | None, *, arranged: RowArrangement | None = None, inputs: int = 0
    ) -> LinearStruct:
        """Copy a weight ``[out, in]`` into groups ``[out / 64][in][64]``, the remainder into panels of 16.

        The last panel is padded with zeros.

        Args:
            weight: ``[out, in]``, float32, bfloat16 or quantised to int8.
            bias: ``[out]``.
            arranged: reorders tensors along their first dimension, the outputs.
            inputs: minimum number of inputs; the weights of additional inputs are zero.
        """
        numbers, scale = int8_parts(weight) or (weight, None)
        if arranged is not None:
            numbers = arranged(numbers)
            bias, scale = (None if t is None else arranged(t) for t in (bias, scale))
        if numbers.shape[1] < inputs:
            numbers = F.pad(numbers, (0, inputs - numbers.shape[1]))
        outputs, inputs = numbers.shape
        missing = -outputs % _WIDTH
        grouped = outputs // _GROUP * _GROUP
        groups = numbers[:grouped].view(-1, _GROUP, inputs).transpose(1, 2)
        rest = F.pad(numbers[grouped:], (0, 0, 0, missing)).view(-1, _WIDTH, inputs).transpose(1, 2)
        bias_, scale_ = (
            None if t is None else self.pointer(F.pad(t.float(), (0, missing))) for t in (bias, scale)
        )
        return LinearStruct(self._copied(groups, rest), bias_, scale_, outputs, inputs, _KINDS[numbers.dtype])

    def pointer(self, tensor: Tensor) -> int:
        """Return the address of a tensor's contiguous data, and keep that data alive."""
        self.held.append(tensor.contiguous())
        return self.held[-1].data_ptr()

    def maybe(self, tensor: Tensor | None) -> int | None:
        """Do the same as :meth:`pointer`, or return None for None."""
        return None if tensor is None else self.pointer(tensor)

    def _copied(self, *parts: Tensor) -> int:
        """Copy parts one after the other into ``memory``, and return the address of the first."""
        begin = self._used
        for part in parts:
            end = self._used + part.numel() * part.itemsize
            self.memory[self._used : end].view(part.dtype).view(part.shape).copy_(part)
            self._used = end
        self._used += -self._used % _LINE
        return self.memory.data_ptr() + begin


def interleave_gates(gate_up: Tensor) -> Tensor:
    """Reorder fused gate and up outputs ``[2 ff, …]`` into groups of both, padded with zeros."""
    fill = (*(0, 0) * (gate_up.ndim - 1), 0, -(len(gate_up) // 2) % GATES_PER_GROUP)
    halves = (F.pad(half, fill).view(-1, GATES_PER_GROUP, *half.shape[1:]) for half in gate_up.chunk(2))
    return torch.stack((*halves,), 1).flatten(0, 2)


def _room(matrix: Tensor) -> int:
    """Return an upper bound of a packed matrix's size in bytes, for any arrangement."""
    numbers, _ = int8_parts(matrix) or (matrix, None)
    outputs, inputs = matrix.shape
    return (
        -(-outputs // _GROUP) * _GROUP * -(-inputs // GATES_PER_GROUP) * GATES_PER_GROUP * numbers.itemsize
        + _LINE
    )
