"""The check whether all numbers of a tensor are finite, in compiled code.

torch converts bfloat16 to float32 for it, in memory as large as two tensors, which takes a third of the time
of loading. Compiled code compares the exponents of the numbers as they are, and uses all threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor

from specclient_local.model.native.build import loaded_library

_EXPONENTS = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}
"""The exponent bits of a number by data type; infinite numbers and NaN have all of them."""


def all_finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a floating-point tensor are finite."""
    exponent = _EXPONENTS.get(tensor.dtype)
    check = _compiled(loaded_library())
    if check is not None and exponent and tensor.device.type == "cpu" and tensor.is_contiguous():
        width, threads = tensor.element_size(), torch.get_num_threads()
        return bool(check(tensor.data_ptr(), tensor.numel(), width, exponent, threads))
    # The sum is NaN or infinite if any value is; only then are the values checked one by one.
    return bool(torch.isfinite(tensor.sum(dtype=torch.float32)) or torch.isfinite(tensor).all())


@cache
def _compiled(run: ctypes.CDLL | None) -> Callable[..., int] | None:
    if run is None:
        return None
    run.specclient_all_finite.argtypes = [c_void_p, *[c_int64] * 4]
    run.specclient_all_finite.restype = c_int64
    return run.specclient_all_finite
