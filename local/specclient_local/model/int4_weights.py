"""Weight matrices in 4 bits: the format, rounding to it, and widening it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["GROUP", "QUARTER", "Int4Weight"]

GROUP = 128
"""Number of consecutive weights of a row that share a scale."""

_PAIR = 2 * GROUP
"""Weights of a row that share ``QUARTER`` integers, each of which holds four weights."""

QUARTER = _PAIR // 4
"""Number of integers for the weights of two groups.

The weights of neighbouring integers are neighbours. So two of them in one register are widened to two
neighbours at once, in the order in which a device multiplies them.
"""

_ZERO = 8
"""The number, from 0 to 15, that stands for zero."""

_RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Scales that are tried for each group, relative to the one by which no weight is cut off."""

_ROWS = 4096
"""Rows that are rounded at a time, which bounds the memory for it."""


class Int4Weight(Tensor):
    """A weight matrix ``[out, in]`` rounded to 4 bits, with one scale for each ``GROUP`` weights of a row.

    It behaves as a tensor of the scales' dtype in ``F.linear``, which widens it first; other operations raise
    NotImplementedError.

    Args:
        qdata: ``[out, ceil(in / 256) * 64]`` int16. Bits ``4 j`` to ``4 j + 3`` of integer ``i`` of the
            ``p``-th 64 of a row are weight ``256 p + 64 j + i`` plus 8.
        scale: ``[ceil(in / 256) * 2, out]``, by group and row, so that the scales of neighbouring rows are
            adjacent.
        width: number of weights of a row.
    """

    qdata: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls: type[Int4Weight], qdata: Tensor, scale: Tensor, width: int) -> Int4Weight:
        wrapper: Any = Tensor._make_wrapper_subclass  # the documented way to a tensor of several parts
        held: Int4Weight = wrapper(cls, (qdata.shape[0], width), dtype=scale.dtype, device=qdata.device)
        return held

    def __init__(self, qdata: Tensor, scale: Tensor, width: int) -> None:  # noqa: ARG002 - as __new__
        self.qdata, self.scale = qdata, scale

    @classmethod
    def rounded(cls, weight: Tensor) -> Int4Weight:
        """Return a floating-point weight ``[out, in]`` rounded to 4 bits.

        The scale of each group is the one of several with the smallest squared error. It is signed, so that
        the largest weight of a group, of either sign, is -8 times the scale.
        """
        out, width = weight.shape
        pairs = -(-width // _PAIR)
        qdata = weight.new_empty((out, pairs * QUARTER), dtype=torch.int16)
        scale = weight.new_empty((2 * pairs, out))
        for first in range(0, out, _ROWS):
            rows = F.pad(weight[first : first + _ROWS].float(), (0, pairs * _PAIR - width))
            numbers, scales = _rounded_groups(rows.view(len(rows), 2 * pairs, GROUP), weight.dtype)
            a, b, c, d = numbers.view(len(rows), pairs, 4, QUARTER).unbind(2)
            qdata[first : first + _ROWS] = (a | b << 4 | c << 8 | d << 12).flatten(1)
            scale[:, first : first + _ROWS] = scales.t()
        return cls(qdata, scale, width)

    def dequantize(self) -> Tensor:
        """Return the rounded weight ``[out, in]`` in the scales' dtype."""
        held = self.qdata.view(len(self.qdata), -1, QUARTER)
        numbers = torch.stack([held >> bits & 15 for bits in (0, 4, 8, 12)], dim=2)
        groups = numbers.view(len(held), -1, GROUP)
        values = (groups.to(self.scale.dtype) - _ZERO) * self.scale.t().unsqueeze(2)
        return values.flatten(1)[:, : self.shape[1]]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # as torch calls it
        return f"Int4Weight({list(self.shape)}, {str(self.dtype)[6:]}, {self.device})"

    def __tensor_flatten__(self) -> tuple[list[str], int]:
        """Return the names of the parts, as torch's tools expect of a tensor of several."""
        return ["qdata", "scale"], self.shape[1]

    @staticmethod
    def __tensor_unflatten__(
        parts: dict[str, Tensor], width: int, _size: Sequence[int], _stride: Sequence[int]
    ) -> Int4Weight:
        return Int4Weight(parts["qdata"], parts["scale"], width)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear:
            return _linear(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():  # as the base class does
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares a function that disables it
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.detach.default:  # torch.nn.Parameter detaches its data
            held = args[0]
            return Int4Weight(held.qdata, held.scale, held.shape[1])
        raise NotImplementedError(f"{func} of a weight in 4 bits; use dequantize() first")


def _linear(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight.dequantize().to(x.dtype), bias)


def _rounded_groups(groups: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the numbers ``[rows, groups, GROUP]`` int16 and scales ``[rows, groups]`` of float32 groups."""
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    best_error = groups.new_full(largest.shape, torch.inf)
    best_scale = torch.zeros_like(largest)
    for ratio in _RATIOS:
        # Rounded as it is stored, so that the numbers fit the scale that they are multiplied by.
        scale = (largest * (-ratio / _ZERO)).to(dtype).float()
        error = (_numbers(groups, scale) * scale - groups).square().sum(-1, keepdim=True)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_scale = torch.where(better, scale, best_scale)
    numbers = _numbers(groups, best_scale) + _ZERO
    return numbers.to(torch.int16), best_scale.squeeze(-1).to(dtype)


def _numbers(groups: Tensor, scale: Tensor) -> Tensor:
    """Return the numbers from -8 to 7 that represent the weights best; 0 for a scale of zero."""
    safe = torch.where(scale == 0, 1.0, scale)
    return (groups / safe).round().clamp(-_ZERO, _ZERO - 1)
