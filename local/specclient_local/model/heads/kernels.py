"""The linear and norm kernels with which draft heads compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.eager_layer import norm_kernel
from specclient_local.model.linear_kernels import KernelChooser, LinearKernel, plain_kernel
from specclient_local.model.native.matmul import native_matmul


@dataclass(frozen=True, slots=True)
class HeadKernels:
    """The functions that build a head's linear layers and norms. The defaults are differentiable.

    Attributes:
        linear: builds a linear layer from weight and bias.
        norm: builds an RMS norm from weight and epsilon.
    """

    linear: Callable[[Tensor, Tensor | None], LinearKernel] = plain_kernel
    norm: Callable[[Tensor, float], LinearKernel] = lambda weight, eps: (
        lambda x: F.rms_norm(x.to(weight.dtype), (x.shape[-1],), weight, eps)
    )


def fast_kernels() -> HeadKernels:
    """Return the fastest kernels on this machine. A row's bits may depend on the batch, which is fine for
    drafts.

    A matrix is packed when it is first used: most matrices of a compiled head never are.
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
