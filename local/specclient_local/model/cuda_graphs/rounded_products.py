"""Products with weights in eight and in four bits, by the kernels of ``triton_products``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.int4_weights import QUARTER, Int4Weight

_MOST_TILES = 4096
"""Tiles of a product that is split over its inputs; one with more tiles fills any device without."""


@dataclass(frozen=True, slots=True)
class ProductTiling:
    """How a product is divided among programs; measured, see ``benchmarks/notes/gpu.md``.

    Attributes:
        rows: rows of a tile.
        outputs: outputs of a tile.
        step: bytes of a row of an int8 weight that are read at a time; of an int4 weight, always 128.
        warps: warps of a program.
        stages: steps that are loaded ahead, and the present one.
        programs: programs that fill the device; with fewer tiles, a product is split over its inputs.
        weight_left: whether the weight is the left operand.
    """

    rows: int
    outputs: int
    step: int
    warps: int
    stages: int
    programs: int
    weight_left: bool

    def splits(self, rows: int, outputs: int, steps: int) -> int:
        """Return the number of parts into which the inputs of a product are split."""
        tiles = -(-rows // self.rows) * -(-outputs // self.outputs)
        return max(1, min(steps, self.programs // tiles))


TILINGS = {
    torch.int16: (
        ProductTiling(16, 64, 128, 4, 3, 528, weight_left=True),
        ProductTiling(64, 64, 128, 4, 3, 264, weight_left=True),
    ),
    torch.int8: (
        ProductTiling(16, 64, 256, 4, 3, 264, weight_left=False),
        ProductTiling(64, 64, 128, 4, 3, 264, weight_left=True),
        ProductTiling(128, 64, 128, 4, 3, 264, weight_left=True),
    ),
}
"""By the data type in which a weight is held, the tilings by ascending rows; the last one is for more rows as
well."""


class RoundedProducts:
    """Products of bfloat16 rows with weights in eight or four bits.

    Raises:
        ImportError: triton is not installed.
    """

    def __init__(self) -> None:
        from specclient_local.model.cuda_graphs import triton_products  # noqa: PLC0415 - needs triton

        self._kernels = triton_products
        self._arrived: dict[torch.device, Tensor] = {}

    def int4(self, x: Tensor, weight: Int4Weight) -> Tensor:
        """Return the product ``[N, out]`` of rows ``[N, in]`` with an int4 weight."""
        (count, width), pairs = x.shape, weight.qdata.shape[1] // QUARTER
        tiling = _tiling(torch.int16, count)
        splits = tiling.splits(count, len(weight.qdata), pairs)
        out, sums = self._results(x, len(weight.qdata), splits)
        self._kernels.int4_product_kernel[_grid(tiling, out, splits)](
            *(x, weight.qdata, weight.scale, sums, self._counters(x.device), out),
            *(count, out.shape[1], width, pairs, -(-pairs // splits)),
            **_options(tiling, splits),
            QUARTER=QUARTER,
            WHOLE=count % tiling.rows == 0 == out.shape[1] % tiling.outputs and width == 4 * QUARTER * pairs,
        )
        return out

    def int8(self, x: Tensor, values: Tensor, scale: Tensor) -> Tensor:
        """Return the product ``[N, out]`` of rows ``[N, in]`` with int8 values and a scale per output."""
        count, width = x.shape
        tiling = _tiling(torch.int8, count)
        steps = -(-width // tiling.step)
        splits = tiling.splits(count, len(values), steps)
        out, sums = self._results(x, len(values), splits)
        self._kernels.int8_product_kernel[_grid(tiling, out, splits)](
            *(x, values, scale, sums, self._counters(x.device), out),
            *(count, out.shape[1], width, -(-steps // splits) * tiling.step),
            **_options(tiling, splits),
            BLOCK_K=tiling.step,
            WHOLE=count % tiling.rows == 0 == out.shape[1] % tiling.outputs and width == steps * tiling.step,
        )
        return out

    def _results(self, x: Tensor, outputs: int, splits: int) -> tuple[Tensor, Tensor]:
        """Return the product's tensor and that of the sums of its parts; the product's if it has one."""
        out = torch.empty((len(x), outputs), dtype=x.dtype, device=x.device)
        if splits == 1:
            return out, out
        return out, torch.empty((splits, len(x), outputs), dtype=torch.float32, device=x.device)

    def _counters(self, device: torch.device) -> Tensor:
        """Return the counters of finished parts by tile, which are zero between products.

        They are made before the first recording, which runs its products once.
        """
        if device not in self._arrived:
            self._arrived[device] = torch.zeros(_MOST_TILES, dtype=torch.int32, device=device)
        return self._arrived[device]


def _tiling(dtype: torch.dtype, rows: int) -> ProductTiling:
    """Return the tiling with the smallest tile that holds all rows, or with the largest one."""
    *smaller, largest = TILINGS[dtype]
    return next((tiling for tiling in smaller if rows <= tiling.rows), largest)


def _grid(tiling: ProductTiling, out: Tensor, splits: int) -> tuple[int, int, int]:
    return -(-out.shape[1] // tiling.outputs), splits, -(-len(out) // tiling.rows)


def _options(tiling: ProductTiling, splits: int) -> dict[str, int | bool]:
    return {
        "BLOCK_M": tiling.rows,
        "BLOCK_N": tiling.outputs,
        "WEIGHT_LEFT": tiling.weight_left,
        "SPLIT": splits > 1,
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
    }
