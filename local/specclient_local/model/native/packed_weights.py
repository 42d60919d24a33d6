"""Packing of weight matrices into the panels that compiled code reads, adjacent in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from ctypes import POINTER, byref, c_int64, pointer
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.int4_rows import has_zero_points, int4_inputs, int4_panels, is_int4_rows
from specclient_local.model.native.build import library
from specclient_local.model.native.huge_pages import large_pages
from specclient_local.model.native.structs import LinearStruct, PackingStruct
from specclient_local.model.quantization import int8_parts

_WIDTH = 16
"""Outputs of a panel; ``W`` in ``matmul.h``."""

_GROUP = 4 * _WIDTH
"""Outputs of a group of four panels."""

GATES_PER_GROUP = 2 * _WIDTH
"""Gate outputs per group; as many ``up`` outputs follow them in the group."""

_LINE = 64
"""Bytes of a cache line."""

_FLOAT32, _INT8, _BFLOAT16, _BFLOAT16_PAIRS, _INT8_GROUPS, _INT4_GROUPS, _INT4_ZEROS = range(7)
"""Numbers of element types in ``matmul.h``; sums are float32 for all of them."""

_KINDS = {torch.float32: _FLOAT32, torch.int8: _INT8, torch.bfloat16: _BFLOAT16}
_GROUPED = {"int8": _INT8_GROUPS, "int4": _INT4_GROUPS}

PACKED_FORMATS = tuple(_GROUPED)
"""Formats to which weights are rounded when they are packed; see ``dot_products.h``."""


RowArrangement = Callable[[Tensor], Tensor]


def can_be_packed(weight: Tensor) -> bool:
    """Return whether a matrix can be packed: float32, bfloat16 or rows of bytes on a CPU, or int8."""
    if type(weight) is not Tensor:
        return int8_parts(weight) is not None
    return (
        is_int4_rows(weight) or weight.dtype in (torch.float32, torch.bfloat16)
    ) and weight.device.type == "cpu"


def scratch_for_rows(linears: Iterable[LinearStruct], rows: int) -> Tensor:
    """Return memory for the converted rows of any of the products, aligned to vectors."""
    run = _compiled()
    widest = max((run.specclient_converted_bytes(byref(linear)) for linear in linears), default=0)
    memory = torch.empty(rows * widest + _LINE, dtype=torch.uint8)
    return memory[-memory.data_ptr() % _LINE :]


class PackedWeights:
    """Packed matrices in huge pages, and the other tensors whose addresses compiled code holds.

    Args:
        shapes: ``(out, in)`` of all matrices that will be passed to :meth:`linear`.
        rounded_to: one of :data:`PACKED_FORMATS`, to which weights are rounded; None keeps their numbers.

    Attributes:
        memory: memory of the panels, with room for any arrangement. Only what is in use becomes resident.
        used: bytes of it that are in use.
        rounded_to: the format to which weights are rounded.
        held: other tensors, kept alive for compiled code.
    """

    def __init__(self, shapes: Iterable[tuple[int, int]], rounded_to: str | None = None) -> None:
        self.memory = large_pages(sum(_room(*shape, rounded_to) for shape in shapes))
        self.held: list[Tensor] = []
        self.rounded_to = rounded_to
        self.used = 0

    def linear(
        self, weight: Tensor, bias: Tensor | None, *, arranged: RowArrangement | None = None, inputs: int = 0
    ) -> LinearStruct:
        """Copy a weight ``[out, in]`` into groups ``[out / 64][in][64]``, the remainder into panels of 16.

        The last panel is padded with zeros. Dot products need their factors side by side: see
        ``dot_products.h`` for the order within a group.

        Args:
            weight: ``[out, in]``, float32, bfloat16 or quantised to int8; or rows of bytes in 4 bits, which
                are not rounded again.
            bias: ``[out]``.
            arranged: reorders tensors along their first dimension, the outputs.
            inputs: minimum number of inputs; the weights of additional inputs are zero.
        """
        bias = None if bias is None else bias.float()
        if is_int4_rows(weight):
            return self._copied_int4(weight, bias, arranged, inputs)
        kind = self._kind(weight)
        if kind >= _BFLOAT16_PAIRS:
            return self._packed(weight, bias, kind, arranged, inputs)
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
        return LinearStruct(self._copied(groups, rest), bias_, scale_, outputs, inputs, kind)

    def pointer(self, tensor: Tensor) -> int:
        """Return the address of a tensor's contiguous data, and keep that data alive."""
        self.held.append(tensor.contiguous())
        return self.held[-1].data_ptr()

    def maybe(self, tensor: Tensor | None) -> int | None:
        """Do the same as :meth:`pointer`, or return None for None."""
        return None if tensor is None else self.pointer(tensor)

    def _kind(self, weight: Tensor) -> int:
        if type(weight) is Tensor and self.rounded_to is not None:
            return _GROUPED[self.rounded_to]
        if type(weight) is Tensor and weight.dtype == torch.bfloat16 and multiplies_bfloat16():
            return _BFLOAT16_PAIRS
        return _KINDS[(int8_parts(weight) or (weight,))[0].dtype]

    def _packed(
        self, weight: Tensor, bias: Tensor | None, kind: int, arranged: RowArrangement | None, inputs: int
    ) -> LinearStruct:
        """Pack and, if ``kind`` is a grouped format, round a weight by compiled code."""
        weight, order = weight.contiguous(), _order(len(weight), arranged)
        outputs = len(order)
        if bias is not None:
            bias = F.pad(bias if arranged is None else arranged(bias), (0, -outputs % _WIDTH))
        linear = LinearStruct(
            self.memory.data_ptr() + self.used,
            self.maybe(bias),
            None,
            outputs,
            max(inputs, weight.shape[1]),
            kind,
        )
        run = _compiled()
        self.used += run.specclient_packed_bytes(byref(linear))
        self.used += -self.used % _LINE
        packing = PackingStruct(
            pointer(linear),
            weight.data_ptr(),
            weight.shape[1],
            weight.dtype == torch.bfloat16,
            order.data_ptr(),
        )
        run.specclient_pack(byref(packing), torch.get_num_threads())
        return linear

    def _copied_int4(
        self, rows: Tensor, bias: Tensor | None, arranged: RowArrangement | None, inputs: int
    ) -> LinearStruct:
        """Pack a matrix of rows of bytes; its numbers and scales are copied."""
        order, inputs = _order(len(rows), arranged), max(inputs, int4_inputs(rows))
        if bias is not None:
            bias = F.pad(bias if arranged is None else arranged(bias), (0, -len(order) % _WIDTH))
        panels = self._copied(int4_panels(rows, order, inputs, (_GROUP, _WIDTH)))
        kind = _INT4_ZEROS if has_zero_points(rows) else _INT4_GROUPS
        return LinearStruct(panels, self.maybe(bias), None, len(order), inputs, kind)

    def _copied(self, *parts: Tensor) -> int:
        """Copy parts one after the other into ``memory``, and return the address of the first."""
        begin = self.used
        for part in parts:
            end = self.used + part.numel() * part.itemsize
            self.memory[self.used : end].view(part.dtype).view(part.shape).copy_(part)
            self.used = end
        self.used += -self.used % _LINE
        return self.memory.data_ptr() + begin


def _order(rows: int, arranged: RowArrangement | None) -> Tensor:
    """Return the row of each output, ``[outputs]``; -1 for zeros that an arrangement adds."""
    order = torch.arange(1, rows + 1)
    order = order if arranged is None else arranged(order.unsqueeze(1)).squeeze(1)
    return (order - 1).contiguous()


def interleave_gates(gate_up: Tensor) -> Tensor:
    """Reorder fused gate and up outputs ``[2 ff, …]`` into groups of both, padded with zeros."""
    fill = (*(0, 0) * (gate_up.ndim - 1), 0, -(len(gate_up) // 2) % GATES_PER_GROUP)
    halves = (F.pad(half, fill).view(-1, GATES_PER_GROUP, *half.shape[1:]) for half in gate_up.chunk(2))
    return torch.stack((*halves,), 1).flatten(0, 2)


def rounds_rows(linear: LinearStruct) -> bool:
    """Return whether products with a packed matrix round their rows, to bfloat16 or int8."""
    return int(linear.kind) >= _BFLOAT16_PAIRS


def multiplies_bfloat16() -> bool:
    """Return whether the processor multiplies pairs of bfloat16, and so whether rows are rounded to it."""
    run = library()
    return run is not None and bool(run.specclient_multiplies_bfloat16())


@cache
def _compiled() -> ctypes.CDLL:
    run = library()
    assert run is not None  # matrices are packed for compiled code only
    run.specclient_pack.argtypes = [POINTER(PackingStruct), c_int64]
    run.specclient_pack.restype = None
    for size in (run.specclient_packed_bytes, run.specclient_converted_bytes):
        size.argtypes, size.restype = [POINTER(LinearStruct)], c_int64
    run.specclient_multiplies_bfloat16.restype = c_int64
    return run


def _room(outputs: int, inputs: int, rounded_to: str | None) -> int:
    """Return an upper bound of a packed matrix's size in bytes, for any arrangement."""
    padded = -(-outputs // _GROUP) * _GROUP * -(-inputs // GATES_PER_GROUP) * GATES_PER_GROUP
    return padded * (4 if rounded_to is None else 2) + _LINE
