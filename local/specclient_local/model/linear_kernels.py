"""Kernels for linear layers, and the choice of the fastest one whose rows do not depend on the batch size.

Greedy speculation equals plain decoding token by token only if scoring K + 1 rows gives each row the
logits it would have alone. Library matrix products use another summation order for one row than for
several, so near ties could be resolved differently. Each kernel is therefore tried when the model is
loaded, on the machine that runs it. Of the kernels with bit-identical rows the fastest is chosen. If there
is none, rows are computed one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.quantization import int8_parts, linear
from specclient_local.request.params import MAX_PREDICTED_LENGTH

LinearKernel = Callable[[Tensor], Tensor]
"""Maps ``[N, in]`` to ``[N, out]``, including the bias."""

MAX_ROWS_PER_REQUEST = MAX_PREDICTED_LENGTH + 1
"""Maximum rows of one request that must not depend on each other; more (a prefill) run as a faster block."""

_TARGET_ROWS = (1, 5)
_DRAFT_ROWS = (1,)
"""Row counts by whose summed times kernels are compared: a plain step and a verification, or a draft's
step.
"""

_COLUMN_BLOCK = 256
"""Output columns of a block of :func:`column_kernel`."""


def plain_kernel(weight: Tensor, bias: Tensor | None) -> LinearKernel:
    """Return the library's product, which chooses its kernel."""
    return lambda x: linear(x, weight, bias)


def packed_kernel(weight: Tensor, bias: Tensor | None) -> LinearKernel:
    """Return a oneDNN kernel with a prepacked weight: few rows cost little more than one (CPU only)."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TARGET_ROWS[-1])
    run = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: run(x, packed, bias, "none", [], None)


def column_kernel(weight: Tensor, bias: Tensor | None) -> LinearKernel:
    """Return a batched product over blocks of output columns; faster where the library's kernel is slow."""
    out, width = weight.shape
    count = max(1, out // _COLUMN_BLOCK)
    while out % count:
        count -= 1
    blocks = weight.view(count, out // count, width).transpose(1, 2).contiguous()

    def run(x: Tensor) -> Tensor:
        y = torch.bmm(x.unsqueeze(0).expand(count, -1, -1), blocks).transpose(0, 1).reshape(x.shape[0], out)
        return y if bias is None else y + bias

    return run


def row_kernel(weight: Tensor, bias: Tensor | None, most: int = MAX_ROWS_PER_REQUEST) -> LinearKernel:
    """Return ``F.linear`` row by row, up to ``most`` rows: slow, but independent of the batch size."""

    def run(x: Tensor) -> Tensor:
        if not 1 < len(x) <= most:
            return F.linear(x, weight, bias)
        return torch.cat([F.linear(x[i : i + 1], weight, bias) for i in range(len(x))])

    return run


def int8_kernel(weight: Tensor, bias: Tensor | None) -> LinearKernel:
    """Return torch's product with an int8 weight that has one scale per output row (CPU only)."""
    parts = int8_parts(weight)
    if parts is None:
        raise NotImplementedError("the weight is not int8")
    numbers, scale = parts

    def run(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten._weight_int8pack_mm(x, numbers, scale.to(x.dtype))
        return y if bias is None else y + bias

    return run


KernelFactory = Callable[[Tensor, Tensor | None], LinearKernel]
"""Builds the kernel for a weight ``[out, in]`` and a bias ``[out]``."""

KERNELS: dict[str, KernelFactory] = {
    "plain": plain_kernel,
    "packed": packed_kernel,
    "columns": column_kernel,
    "rows": row_kernel,
}
QUANTIZED_KERNELS: dict[str, KernelFactory] = {"plain": plain_kernel, "int8": int8_kernel, "rows": row_kernel}
"""Kernels for quantised weights; ``plain`` is torchao's choice."""

_LAST_RESORT = "rows"
"""The kernel that is used if no other one has bit-identical rows; it is never timed."""


def kernels_of(weight: Tensor) -> dict[str, KernelFactory]:
    """Return the kernels that support a weight."""
    return KERNELS if type(weight) is Tensor else QUANTIZED_KERNELS


class KernelChooser:
    """Chooses a kernel once per weight shape, and builds it for each weight of that shape.

    Args:
        exact: whether a row's result must not depend on the other rows. Required for a target. A draft may
            compute any distribution as long as it reports the one it sampled from, so the fastest kernel is
            used.
        most: rows of the largest pass for which this holds; larger passes belong to a single request.
        clock: returns monotonic seconds.

    Attributes:
        chosen: name of the chosen kernel by weight shape ``(out, in)``.
    """

    def __init__(
        self,
        *,
        exact: bool = True,
        most: int = MAX_ROWS_PER_REQUEST,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._exact = exact
        self._most = most
        self._rows = _TARGET_ROWS if exact else _DRAFT_ROWS
        self._clock = clock
        self.chosen: dict[tuple[int, int], str] = {}

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> LinearKernel:
        """Build the kernel for a weight ``[out, in]`` and a bias ``[out]``."""
        shape = (weight.shape[0], weight.shape[1])
        if shape not in self.chosen:
            self.chosen[shape] = self._choose(weight)
        if self.chosen[shape] == _LAST_RESORT:
            return row_kernel(weight, bias, self._most)
        return kernels_of(weight)[self.chosen[shape]](weight, bias)

    def _choose(self, weight: Tensor) -> str:
        if weight.device.type != "cpu":
            return "plain"
        usable: dict[str, LinearKernel] = {}
        for name, build in kernels_of(weight).items():
            if name == _LAST_RESORT:
                continue
            try:
                usable[name] = build(weight, None)
                usable[name](_probe(weight, 1))
            except (RuntimeError, AttributeError, NotImplementedError):
                usable.pop(name, None)  # this torch build has no such kernel for this type
        if self._exact:
            usable = {
                name: kernel for name, kernel in usable.items() if is_row_stable(kernel, weight, self._most)
            }
        cost = dict.fromkeys(usable, 0.0)
        for rows in self._rows:
            for name, seconds in self._time(usable, _probe(weight, rows)).items():
                cost[name] += seconds
        return min(cost, key=lambda name: cost[name], default=_LAST_RESORT)

    def _time(self, kernels: dict[str, LinearKernel], x: Tensor, repeats: int = 7) -> dict[str, float]:
        """Return each kernel's best time in seconds; kernels alternate, so load affects all of them alike."""
        best = dict.fromkeys(kernels, float("inf"))
        for _ in range(repeats):
            for name, kernel in kernels.items():
                begun = self._clock()
                kernel(x)
                best[name] = min(best[name], self._clock() - begun)
        return best


def is_row_stable(kernel: LinearKernel, weight: Tensor, most: int = MAX_ROWS_PER_REQUEST) -> bool:
    """Return whether rows are bit-identical alone and in a batch, for every batch size up to ``most``."""
    x = _probe(weight, most)
    alone = torch.cat([kernel(x[i : i + 1]) for i in range(most)])
    return all(torch.equal(kernel(x[:count]), alone[:count]) for count in range(2, most + 1))


def _probe(weight: Tensor, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, weight.shape[1], generator=generator).to(weight.dtype)
