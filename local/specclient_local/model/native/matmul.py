"""A packed matrix as a linear kernel, for draft heads."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights

_LARGE = 4_000_000
"""Numbers of a matrix from which on torch's product is taken, which threads share."""


class NativeMatmul:
    """A matrix in panels as a kernel: ``[..., in]`` to ``[..., out]``, the bias added.

    Args:
        weight: ``[out, in]`` float32 on a processor; its numbers are copied.
        bias: ``[out]``.
        run: the library's function.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, run: Callable[..., None]) -> None:
        self._run, self._outputs = run, weight.shape[0]
        self._panels = PackedWeights([weight])
        self._table = self._panels.linear(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply rows with it."""
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self._outputs)
        self._run(addressof(self._table), x.data_ptr(), y.numel() // self._outputs, y.data_ptr())
        return y


def native_matmul(weight: Tensor, bias: Tensor | None) -> NativeMatmul | None:
    """Return a matrix as a kernel; None where it is large or no float32 on a CPU, or nothing compiles."""
    plain = type(weight) is Tensor and weight.dtype == torch.float32 and weight.device.type == "cpu"
    run = _compiled() if plain and weight.numel() < _LARGE else None
    return None if run is None else NativeMatmul(weight, bias, run)


@cache
def _compiled() -> Callable[..., None] | None:
    run = library()
    if run is None:
        return None
    run.specclient_linear.argtypes = [c_void_p, c_void_p, c_int64, c_void_p]
    run.specclient_linear.restype = None
    return run.specclient_linear
