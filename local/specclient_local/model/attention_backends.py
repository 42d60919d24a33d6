"""Which of torch's attention kernels may run calls with a mask on a CUDA device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

_ALIGNED = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)


def masked_attention(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which masked attention does not use cuDNN.

    cuDNN builds a plan for every shape, which takes up to half a second, and nearly every prompt has a
    new shape. Other devices have no such kernels.
    """
    return sdpa_kernel(list(_ALIGNED)) if device.type == "cuda" else nullcontext()


def aligned_mask(mask: Tensor) -> Tensor:
    """Return a mask ``[N, L]`` that CUDA kernels can read: its own storage, so each row is aligned.

    The memory-efficient kernel reads 16 bytes at once. A view of a larger mask begins anywhere: bfloat16
    rejects it, and float32 may fail with an error that ends the process's use of the device.
    """
    return mask if mask.device.type == "cpu" else mask.clone(memory_format=torch.contiguous_format)
