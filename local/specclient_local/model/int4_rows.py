"""Matrices in 4 bits as rows of bytes, which a family joins and reorders as it does rows of numbers.

A row has the numbers of its groups of 32 inputs, two in a byte, then the groups' scales in bfloat16, and then
their zero points, a byte each. This is the form between a checkpoint's own 4 bits and the panels of compiled
passes, to which the numbers are copied without rounding them
(:mod:`specclient_local.model.native.packed_weights`).
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP_INPUTS = 32
"""Inputs that share a scale."""

_HALF = GROUP_INPUTS // 2
_GROUP_BYTES = _HALF + 2 + 1
_ZERO = 8
"""The number, from 0 to 15, that stands for zero in a symmetric group."""


def is_int4_rows(matrix: Tensor) -> bool:
    """Return whether a matrix is one of rows of bytes."""
    return matrix.dtype == torch.uint8


def int4_rows(numbers: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
    """Return rows of bytes ``[out, groups * 19]`` uint8.

    Args:
        numbers: ``[out, groups * 32]`` from 0 to 15.
        scale: ``[out, groups]``; a weight is its number minus the zero point, times the scale in bfloat16.
        zeros: ``[out, groups]`` zero points from 0 to 255.
    """
    grouped = numbers.to(torch.uint8).view(len(numbers), -1, GROUP_INPUTS)
    pairs = grouped[:, :, :_HALF] | grouped[:, :, _HALF:] << 4
    halves = scale.to(torch.bfloat16).contiguous().view(torch.uint8)
    return torch.cat((pairs.flatten(1), halves, zeros.to(torch.uint8)), dim=1)


def int4_parts(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pairs of numbers ``[out, groups, 16]`` uint8, the scales ``[out, groups]`` bfloat16, and the
    zero points ``[out, groups]`` uint8.
    """
    groups = rows.shape[1] // _GROUP_BYTES
    pairs, scales, zeros = torch.split(rows, [groups * _HALF, 2 * groups, groups], dim=1)
    return pairs.reshape(len(rows), groups, _HALF), scales.contiguous().view(torch.bfloat16), zeros


def has_zero_points(rows: Tensor) -> bool:
    """Return whether a zero point of a matrix is another number than 8."""
    return not bool((int4_parts(rows)[2] == _ZERO).all())


def int4_inputs(rows: Tensor) -> int:
    """Return the number of inputs of a matrix of rows of bytes."""
    return rows.shape[1] // _GROUP_BYTES * GROUP_INPUTS


def int4_panels(rows: Tensor, order: Tensor, inputs: int, widths: tuple[int, int]) -> Tensor:
    """Return panels in the order of ``dot_products.h``, as bytes.

    The order is that of ``INT4_ZEROS`` if :func:`has_zero_points`, else that of ``INT4_GROUPS``.

    Args:
        rows: the matrix.
        order: the row of each output; -1 for zeros.
        inputs: number of inputs of a panel, at least those of the matrix.
        widths: outputs of a group of panels, and of a panel. The last outputs that make no group are in
            panels, the last of which is padded with zeros.
    """
    pairs, scales, zeros = int4_parts(rows)
    keeps_zeros = has_zero_points(rows)
    groups = -(-inputs // GROUP_INPUTS)
    known = pairs.shape[1]
    count = -(-len(order) // widths[1]) * widths[1]
    own = torch.full((count, groups, _HALF), _ZERO | _ZERO << 4, dtype=torch.uint8)
    scale = torch.zeros(count, groups, dtype=torch.bfloat16)
    zero = torch.full((count, groups), _ZERO, dtype=torch.uint8)
    there = (order >= 0).nonzero()[:, 0]
    own[there, :known], scale[there, :known] = pairs[order[there]], scales[order[there]]
    zero[there, :known] = zeros[order[there]]
    first = len(order) // widths[0] * widths[0]
    parts = []
    for begin, end, width in ((0, first, widths[0]), (first, count, widths[1])):
        if begin == end:
            continue
        block = own[begin:end].view(-1, width, groups, 4, 4).permute(0, 2, 3, 1, 4).flatten(2)
        scale_bytes = scale[begin:end].view(-1, width, groups).transpose(1, 2).contiguous().view(torch.uint8)
        blocks = [block, scale_bytes]
        if keeps_zeros:
            blocks.append(zero[begin:end].view(-1, width, groups).transpose(1, 2))
        parts.append(torch.cat(blocks, dim=2).flatten())
    return torch.cat(parts)
