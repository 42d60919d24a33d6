"""Weight quantisation to int8, int4 or fp8 by torchao, for the kernels of ``linear_kernels``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specclient.errors import ConfigurationError

_GROUP = 128
"""Number of int4 weights that share a scale; int8 and fp8 have one scale per output row."""

_WHERE = (
    "int8 is available on every device; int4 on CUDA devices in bfloat16; "
    "fp8 on CUDA devices of compute capability 8.9 or more (Ada, Hopper)"
)


def int8_parts(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return values ``[out, in]`` and scales ``[out]`` of a weight quantised to int8; None for others."""
    held: Any = weight
    if type(weight) is Tensor or not isinstance(getattr(held, "qdata", None), Tensor):
        return None
    rows = weight.shape[0]
    return (
        (held.qdata, held.scale.flatten())
        if held.qdata.dtype == torch.int8 and held.scale.numel() == rows
        else None
    )


def quantize_weight(weight: Tensor, kind: str) -> Tensor:
    """Return a weight ``[out, in]`` as a quantised torchao tensor of the same shape.

    Products are computed in the dtype of the activations: only the weight is rounded.

    Args:
        weight: ``[out, in]``, floating point.
        kind: ``int8``, ``int4`` or ``fp8``.

    Raises:
        ConfigurationError: torchao is not installed, or the device does not support the format.
    """
    device = weight.device
    capable = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
    if (kind == "fp8" and not capable) or (kind == "int4" and device.type != "cuda"):
        raise ConfigurationError(f"quantize is {kind!r}, which {device} does not support; {_WHERE}.")
    try:
        from torchao import quantization as library  # type: ignore[import-untyped] # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            f"quantize is {kind!r}, but torchao is not installed: pip install 'specclient[quant]'"
        ) from error
    settings = {
        "int8": library.Int8WeightOnlyConfig,
        "int4": lambda: library.Int4WeightOnlyConfig(group_size=_GROUP),
        "fp8": library.Float8WeightOnlyConfig,
    }
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    try:
        library.quantize_(layer, settings[kind]())
        layer(weight[:1])
    except (RuntimeError, ValueError, NotImplementedError, AssertionError, ImportError) as error:
        raise ConfigurationError(
            f"quantize is {kind!r}, which torchao refuses for a weight of shape {list(weight.shape)} in "
            f"{str(weight.dtype)[6:]} on {device} ({error}); {_WHERE}."
        ) from error
    return layer.weight.detach()
