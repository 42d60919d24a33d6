"""Weight quantisation to int8 or fp8 by torchao, and to int4, for ``linear_kernels`` and ``cuda_graphs``.

Compiled passes on a CPU have formats of their own, to which weights are rounded when they are packed; see
:mod:`specclient_local.model.native.packed_weights`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specclient.errors import ConfigurationError
from specclient_local.model.int4_weights import Int4Weight

_WHERE = (
    "int8 is available on every device; int4 on the CPU, and on CUDA devices in bfloat16; "
    "fp8 on CUDA devices of compute capability 8.9 or more (Ada, Hopper)"
)


FP8 = torch.float8_e4m3fn
FP8_LARGEST = torch.finfo(FP8).max
FP8_TINY = 1e-12
"""Least largest magnitude of a row, so that the scale of a row of zeros is not zero."""

_ROW_SCALED = (torch.int8, FP8)


def row_scaled_parts(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return values ``[out, in]`` and scales ``[out]`` of an int8 or fp8 weight; None for others."""
    held: Any = weight
    if type(weight) is Tensor or not isinstance(getattr(held, "qdata", None), Tensor):
        return None
    if held.qdata.dtype not in _ROW_SCALED or held.scale.numel() != weight.shape[0]:
        return None
    return held.qdata, held.scale.flatten()


def int8_parts(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return values ``[out, in]`` and scales ``[out]`` of a weight quantised to int8; None for others."""
    parts = row_scaled_parts(weight)
    return parts if parts is not None and parts[0].dtype == torch.int8 else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight.T + bias`` of rows ``[N, in]``.

    On CUDA devices, fp8 weights multiply activations that are rounded to fp8, too, if those are bfloat16. The
    values of other weights with one scale per row are widened, and the scales multiply the outputs. torchao
    widens and scales the whole weight, which takes several times as long. So do int4 weights, outside of the
    kernels for them.
    """
    parts = row_scaled_parts(weight) if x.is_cuda else None
    if parts is None:
        return F.linear(x, weight, bias)
    values, scale = parts
    if values.dtype == FP8 and x.dtype == torch.bfloat16:
        y = fp8_product(*fp8_rows(x), values, scale)
    else:
        y = F.linear(x, values.to(x.dtype)) * scale.to(x.dtype)
    return y if bias is None else y + bias


def fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows ``[N, in]`` in fp8, and the scale of each, ``[N, 1]`` float32."""
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp_(min=FP8_TINY).div_(FP8_LARGEST)
    return (x.float() / scale).to(FP8), scale


def fp8_product(rows: Tensor, row_scale: Tensor, values: Tensor, scale: Tensor) -> Tensor:
    """Return the product ``[N, out]`` of fp8 rows and an fp8 weight ``[out, in]``, in bfloat16."""
    return torch._scaled_mm(  # the only way to the library's fp8 products
        rows,
        values.t(),
        scale_a=row_scale,
        scale_b=scale.float().view(1, -1),
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def check_quantization(kind: str | None, device: torch.device) -> None:
    """Check that a device supports a format, before any weight is read; None is no format.

    Raises:
        ConfigurationError: it does not.
    """
    capable = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
    if (kind == "fp8" and not capable) or (kind == "int4" and device.type not in ("cpu", "cuda")):
        raise ConfigurationError(f"quantize is {kind!r}, which {device} does not support; {_WHERE}.")


def quantize_weight(weight: Tensor, kind: str) -> Tensor:
    """Return a weight ``[out, in]`` as a quantised tensor of the same shape.

    Products are computed in the dtype of the activations: only the weight is rounded. Products with fp8
    weights in bfloat16 are computed in fp8; see :func:`linear`.

    Args:
        weight: ``[out, in]``, floating point.
        kind: ``int8``, ``int4`` or ``fp8``.

    Raises:
        ConfigurationError: the device does not support the format, or torchao, which int8 and fp8 need, is
            not installed.
    """
    device = weight.device
    check_quantization(kind, device)
    if kind == "int4":
        return Int4Weight.rounded(weight)
    try:
        from torchao import quantization as library  # type: ignore[import-untyped] # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            f"quantize is {kind!r}, but torchao is not installed: pip install 'specclient[quant]'"
        ) from error
    settings = {
        "int8": library.Int8WeightOnlyConfig,
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
