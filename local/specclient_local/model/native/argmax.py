"""Argmax of a batch's logits by one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_float, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from specclient_local.model.native.build import library


def native_argmax(logits: Sequence[Tensor]) -> tuple[list[int], list[float]] | None:
    """Return each row's argmax (the first of equal logits; NaN is larger than any number) and largest logit.

    Args:
        logits: matrices ``[N, V]`` of one width on one device; each has its own N.

    Returns:
        The two lists over all rows, or None if the logits are not float32 on the CPU or nothing compiles.
    """
    if logits[0].device.type != "cpu":
        return None
    table: list[int] = []
    rows = 0
    for matrix in logits:
        count, stride = matrix.shape[0], matrix.stride()
        if matrix.dtype != torch.float32 or stride[1] != 1:
            return None
        table += matrix.data_ptr(), count, stride[0]
        rows += count
    argmax = _compiled()
    if argmax is None:
        return None
    matrices, indices, values = (c_int64 * len(table))(*table), (c_int64 * rows)(), (c_float * rows)()
    argmax(addressof(matrices), len(logits), logits[0].shape[1], addressof(indices), addressof(values))
    return indices[:], values[:]


@cache
def _compiled() -> Callable[..., None] | None:
    run = library()
    if run is None:
        return None
    run.specclient_argmax.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_void_p]
    run.specclient_argmax.restype = None
    return run.specclient_argmax
