"""Linear kernel in compiled code over a packed matrix, for draft heads."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights

_LARGE = 4_000_000
"""Matrix size, in elements, from which on torch's multithreaded product is used."""


class NativeMatmul:
    """A linear kernel over a packed matrix: ``[..., in]`` to ``[..., out]``, including the bias.

    Args:
        weight: ``[out, in]``, float32 on a CPU; copied.
        bias: ``[out]``.
        run: the compiled function.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, run: Callable[..., None]) -> None:
        self._run, self._outputs = run, weight.shape[0]
        self._panels = PackedWeights([(weight.shape[0], weight.shape[1])])
        self._table = self._panels.linear(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply rows ``[..., in]`` by the matrix and add the bias."""
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self._outputs)
        self._run(addressof(self._table), x.data_ptr(), y.numel() // self._outputs, y.data_ptr(), None, 1)
        return y


def native_matmul(weight: Tensor, bias: Tensor | None) -> NativeMatmul | None:
    """Return a kernel; None if the matrix is large or not float32 on a CPU, or compiled code is missing."""
    plain = type(weight) is Tensor and weight.dtype == torch.float32 and weight.device.type == "cpu"
    run = _compiled() if plain and weight.numel() < _LARGE else None
    return None if run is None else NativeMatmul(weight, bias, run)


@cache
def _compiled() -> Callable[..., None] | None:
    run = library()
    if run is None:
        return None
    run.specclient_linear.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64]
    run.specclient_linear.restype = None
    return run.specclient_linear
