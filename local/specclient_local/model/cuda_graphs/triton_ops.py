"""The operations of a layer between its matrix products, as Triton kernels for CUDA devices.

A layer is then ten launches instead of about thirty. Attention reads the used positions of each slot in
place, split over the keys so that a single request fills the device, and needs no mask over the context: one
recording serves every length.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.device_ops import DeviceOps, PassTables, TorchOps
from specclient_local.model.cuda_graphs.device_verify import SamplingTensors
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.rounded_products import RoundedProducts
from specclient_local.model.int4_weights import Int4Weight
from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.quantization import (
    FP8,
    FP8_LARGEST,
    FP8_TINY,
    fp8_product,
    linear,
    row_scaled_parts,
)

_log = logging.getLogger("specclient")

_KEYS = POSITION_BLOCK
"""Keys per step within a split: one page of a cache of pages."""

_ROW_TILE = 32
"""Queries per tile of the attention. Fixed, so that a row's sums have the same order in any pass."""

_GATE_BLOCK = 1024

_LEAST = 16
"""Smallest side of a tile that tensor cores multiply."""

_FEW_ROWS = 512
"""Rows up to which a product reads an int8 weight directly; more rows are worth widening it first."""


@dataclass(frozen=True, slots=True)
class _AttentionSplits:
    """How attention is split over the keys.

    Attributes:
        keys: keys per split. Fixed, so that a row's sums have the same order at any length.
        chunk: splits combined at once.
        warps: warps that combine one query.
    """

    keys: int
    chunk: int
    warps: int


_FEW_SLOTS = 4
_SHORT = 8192
"""Capacity up to which few slots have small splits; with more keys, combining them would take longer."""

_FEW = _AttentionSplits(keys=128, chunk=16, warps=4)
_FEW_LONG = _AttentionSplits(keys=256, chunk=16, warps=4)
_MANY = _AttentionSplits(keys=256, chunk=4, warps=1)
"""Many slots fill the device by themselves, so each has fewer splits, whose results cost less to combine."""

_PROMPT = _AttentionSplits(keys=4096, chunk=4, warps=1)
"""The rows of a prompt fill the device by themselves as well."""


class TritonOps:
    """The operations as Triton kernels; see
    :class:`~specclient_local.model.cuda_graphs.device_ops.DeviceOps`.

    Raises:
        ImportError: triton is not installed.
    """

    reads_in_place = True

    def __init__(self) -> None:
        from specclient_local.model.cuda_graphs import (  # noqa: PLC0415 - need triton
            triton_cuts,
            triton_kernels,
            triton_sampling,
        )

        self._kernels, self._sampling, self._torch = triton_kernels, triton_sampling, TorchOps()
        self._cuts, self._products = triton_cuts, RoundedProducts()

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        count, size = x.shape
        out = torch.empty_like(x)
        block = _power(size)
        self._kernels.add_norm_kernel[(count,)](
            x,
            x if delta is None else delta,
            weight,
            out,
            eps,
            SIZE=size,
            BLOCK=block,
            ADD=delta is not None,
            num_warps=min(16, max(1, block // 512)),
        )
        return x, out

    def rotate_and_store(
        self, qkv: Tensor, kv: Tensor, norm: Tensor | None, tables: PassTables, eps: float
    ) -> Tensor:
        """See :class:`DeviceOps`."""
        batch, rows = tables.places.shape
        shared, dim = kv.shape[1] // 2, kv.shape[3]
        heads = qkv.shape[1] // dim - 2 * shared
        queries = torch.empty((batch, rows, heads, dim), dtype=qkv.dtype, device=qkv.device)
        self._kernels.rotate_kernel[(batch * rows, heads + 2 * shared)](
            qkv,
            queries,
            kv,
            tables.cos if norm is None else norm,
            tables.cos,
            tables.sin,
            tables.layout.slots if tables.pages is None else tables.pages,
            tables.places,
            rows if tables.pages is None else 1,
            kv.stride(0),
            kv.stride(1),
            eps,
            HEADS=heads,
            SHARED=shared,
            DIM=dim,
            PAIRS=_power(dim // 2),
            NORM=norm is not None,
            num_warps=1,
        )
        return queries

    def attend(self, queries: Tensor, kv: Tensor, tables: PassTables, *, sliding: bool) -> Tensor:
        """See :class:`DeviceOps`."""
        layout, table = tables.layout, tables.block_table
        batch, rows, heads, dim = queries.shape
        shared = kv.shape[1] // 2
        cut = _splits(layout, batch)
        splits, tiles = -(-layout.length // cut.keys), -(-rows * heads // (shared * _ROW_TILE))
        block_d = max(_LEAST, _power(dim))
        slabs = batch, shared, splits, tiles * _ROW_TILE
        partial = torch.empty((*slabs, block_d), dtype=torch.float32, device=kv.device)
        stats = torch.empty((*slabs, 2), dtype=torch.float32, device=kv.device)
        out = torch.empty((batch * rows, heads * dim), dtype=queries.dtype, device=kv.device)
        shape = {"HEADS": heads, "SHARED": shared, "DIM": dim, "BLOCK_D": block_d, "SPLIT": cut.keys}
        shape |= {"TILES": tiles, "BLOCK_M": _ROW_TILE}
        window = tables.window if sliding else None
        self._kernels.attend_kernel[(splits * tiles, shared, batch)](
            queries,
            kv,
            partial,
            stats,
            layout.slots,
            layout.slots if table is None else table,
            layout.positions,
            layout.origins,
            layout.origins if layout.words is None else layout.words,
            layout.ends,
            dim**-0.5,
            rows,
            kv.stride(0),
            kv.stride(1),
            0 if table is None else table.stride(0),
            window or 0,
            layout.length,
            splits,
            **shape,
            BLOCK_N=_KEYS,
            WORDS=layout.words is not None,
            WINDOW=window is not None,
            PAGED=table is not None,
            PRECISION="ieee" if queries.dtype == torch.float32 else "tf32",
            num_warps=4,
            num_stages=3 if queries.element_size() == 2 else 1,
        )
        self._kernels.combine_kernel[(rows * heads // shared, shared, batch)](
            partial,
            stats,
            out,
            layout.ends,
            rows,
            splits,
            layout.length,
            **shape,
            CHUNK=cut.chunk,
            num_warps=cut.warps,
        )
        return out

    def gate(self, gate_up: Tensor) -> Tensor:
        """See :class:`DeviceOps`."""
        count, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((count, size), dtype=gate_up.dtype, device=gate_up.device)
        grid = (count, -(-size // _GATE_BLOCK))
        self._kernels.gate_kernel[grid](gate_up, out, SIZE=size, BLOCK=_GATE_BLOCK, num_warps=4)
        return out

    def largest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        return self._sampling.largest(logits)

    def probabilities(self, logits: Tensor, shaping: SamplingTensors) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        if logits.dtype == torch.float32:
            return self._torch.probabilities(logits, shaping)
        if shaping.cuts:
            return self._cuts.cut_probabilities(logits, shaping)
        return self._sampling.probabilities(logits, shaping.temperature)

    def draw(self, p: Tensor, uniform: Tensor) -> Tensor:
        """See :class:`DeviceOps`."""
        return self._sampling.draw(p, uniform) if p.dtype == torch.float32 else self._torch.draw(p, uniform)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See :class:`DeviceOps`."""
        if isinstance(weight, Int4Weight) and x.dtype == torch.bfloat16:
            y = self._products.int4(x, weight)
            return y if bias is None else y + bias
        parts = row_scaled_parts(weight)
        if parts is None or x.dtype != torch.bfloat16:
            return linear(x, weight, bias)
        values, scale = parts
        if values.dtype == FP8:
            y = fp8_product(*self._fp8_rows(x), values, scale)
        elif len(x) <= _FEW_ROWS:
            y = self._products.int8(x, values, scale)
        else:
            return linear(x, weight, bias)
        return y if bias is None else y + bias

    def _fp8_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        count, size = x.shape
        out = torch.empty(x.shape, dtype=FP8, device=x.device)
        scale = torch.empty((count, 1), dtype=torch.float32, device=x.device)
        block = _power(size)
        self._kernels.fp8_rows_kernel[(count,)](
            x,
            out,
            scale,
            SIZE=size,
            BLOCK=block,
            LARGEST=FP8_LARGEST,
            TINY=FP8_TINY,
            num_warps=min(16, max(1, block // 512)),
        )
        return out, scale


def select_ops(config: DecoderConfig, device: torch.device, *, kernels: bool) -> DeviceOps:
    """Return the fastest operations that a device supports.

    Args:
        config: the model's shape; kernels need an even size of heads.
        device: where the model runs.
        kernels: whether Triton's kernels may be used.
    """
    if not kernels or device.type != "cuda" or config.head_dim % 2:
        return TorchOps()
    compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
    if compiler and importlib.util.find_spec("triton") is not None:
        return TritonOps()
    _log.warning(
        "the engine on %s runs without its own kernels, more slowly: they need the package triton and a C "
        "compiler.",
        device,
    )
    return TorchOps()


def _splits(layout: DensePassLayout, slots: int) -> _AttentionSplits:
    """Return how the attention of a pass is split; the same for one row and for a draft of the same slots."""
    if layout.words is None:
        return _PROMPT
    if slots > _FEW_SLOTS:
        return _MANY
    return _FEW if layout.length <= _SHORT else _FEW_LONG


def _power(size: int) -> int:
    """Return the least power of two that is at least ``size``."""
    return 1 << max(0, size - 1).bit_length()
