"""Turn the logits of a batch into each row's likeliest token by one call of the compiled library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_float, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from specclient_local.model.native.build import library


def native_argmax(logits: Sequence[Tensor]) -> tuple[list[int], list[float]] | None:
    """Return each row's largest number's place, the first of equal ones, and that number; NaN is larger.

    Args:
        logits: matrices ``[N, V]`` of one width, on one device; each has its own N.

    Returns:
        None where they are not float32 on a processor, or nothing compiles.
    """
    if logits[0].device.type != "cpu":
        return None
    told: list[int] = []
    rows = 0
    for matrix in logits:
        count, stride = matrix.shape[0], matrix.stride()
        if matrix.dtype != torch.float32 or stride[1] != 1:
            return None
        told += matrix.data_ptr(), count, stride[0]
        rows += count
    largest = _compiled()
    if largest is None:
        return None
    matrices, places, values = (c_int64 * len(told))(*told), (c_int64 * rows)(), (c_float * rows)()
    largest(addressof(matrices), len(logits), logits[0].shape[1], addressof(places), addressof(values))
    return places[:], values[:]


@cache
def _compiled() -> Callable[..., None] | None:
    run = library()
    if run is None:
        return None
    run.specclient_argmax.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_void_p]
    run.specclient_argmax.restype = None
    return run.specclient_argmax
