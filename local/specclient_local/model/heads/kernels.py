"""The linear and norm kernels with which draft heads compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.eager_passes import norm_kernel
from specclient_local.model.linear_kernels import KernelChooser, LinearKernel, plain_kernel
from specclient_local.model.native.matmul import native_matmul


@dataclass(frozen=True, slots=True)
class HeadKernels:
    """What multiplies and normalises; gradients flow through the defaults."""

    linear: Callable[[Tensor, Tensor | None], LinearKernel] = plain_kernel
    norm: Callable[[Tensor, float], LinearKernel] = lambda weight, eps: (
        lambda x: F.rms_norm(x.to(weight.dtype), (x.shape[-1],), weight, eps)
    )


def fast_kernels() -> HeadKernels:
    """Return what computes fastest here; rows may depend on their company, as a draft's may.

    A matrix is laid out when it is first multiplied with: most of a compiled head's never are.
    """
    choose = KernelChooser(exact=False)

    def linear(weight: Tensor, bias: Tensor | None) -> LinearKernel:
        built: list[LinearKernel] = []

        def run(x: Tensor) -> Tensor:
            if not built:
                built.append(native_matmul(weight, bias) or choose(weight, bias))
            return built[0](x)

        return run

    return HeadKernels(linear, norm_kernel)
