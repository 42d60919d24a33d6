"""Decoder with static shapes: a dense batch of token ids ``[slots, rows]`` to logits, for CUDA graphs.

:mod:`specclient_local.model.decoder` computes request by request; this module computes one dense batch. No
operation depends on an input value, so a pass can be recorded once as a CUDA graph and replayed. Keys and
values are written by index; which positions a row attends to is computed from the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.config import DecoderConfig
from specclient_local.model.cuda_graphs.device_ops import DeviceOps, PassTables, TorchOps
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.kv_cache import KVCache
from specclient_local.model.rope import turns
from specclient_local.model.weights import DecoderWeights, LayerWeights

_ROW_CLASS = 16
"""Rows of a matrix product on a CUDA device are padded to a multiple of this.

One token and a verified draft then run the same kernel, which rounds a row alike at either number of rows;
libraries choose other kernels, with other summation orders, for one row. Tensor cores compute 16 rows at once
anyway, and a product of few rows takes the time of reading its weight.
"""


@dataclass(frozen=True, slots=True)
class HiddenStateWriter:
    """Where passes store hidden states, by slot and cache position, for heads that draft from them.

    Attributes:
        layers: after how many layers hidden states are stored; 0 is the embedding.
        depth: number of the model's layers.
        rows: ``[slots, capacity, len(layers), hidden]``, or ``[pages, positions of a page, …]``.
        block_table: the pages of each slot, ``[slots, pages]``; None if the rows are by slot.
    """

    layers: tuple[int, ...]
    depth: int
    rows: Tensor
    block_table: Tensor | None = None

    def read(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Return hidden states ``[S, R, len(layers), hidden]`` at positions ``[S, R]`` of slots ``[S]``.

        Positions are moved to the nearest that the rows have.
        """
        if self.block_table is None:
            return self.rows[slots[:, None], positions.clamp(0, self.rows.shape[1] - 1)]
        return self.rows[page_places(self.block_table, slots, positions, self.rows.shape[1])]

    def write(self, layers: int, x: Tensor, tables: PassTables) -> None:
        """Store hidden states ``[S, R, hidden]`` after a number of layers."""
        self.rows[tables.stored, tables.places, self.layers.index(layers)] = x


def page_places(block_table: Tensor, slots: Tensor, positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the pages ``[S, R]`` of positions of slots, and the places there.

    Args:
        block_table: the pages of each slot, ``[slots, pages]``.
        slots: ``[S]``.
        positions: ``[S, R]``; moved to the nearest that the pages have.
        size: number of positions of a page.
    """
    at = positions.clamp(0, block_table.shape[1] * size - 1)
    return block_table[slots[:, None], at // size], at % size


class DenseDecoder:
    """A loaded model as a function with static shapes; holds no state of requests.

    Args:
        config: the model's configuration.
        weights: the loaded weights.
        context: maximum positions; the size of the rotation tables.
        ops: the operations between matrix products; PyTorch's by default.

    Attributes:
        ops: as above; may be replaced while nothing is recorded.
    """

    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, context: int, *, ops: DeviceOps | None = None
    ) -> None:
        self.config = config
        self.weights = weights
        self.context = context
        self.device = weights.embedding.device
        self.ops: DeviceOps = ops or TorchOps()
        self.row_class = _ROW_CLASS if self.device.type == "cuda" else 1
        table = turns(config.rope, config.head_dim, context)
        self._cos, self._sin = (
            table.real.contiguous().to(self.device),
            table.imag.contiguous().to(self.device),
        )

    def hidden(
        self,
        ids: Tensor,
        tables: PassTables,
        cache: KVCache,
        states: HiddenStateWriter | None = None,
    ) -> Tensor:
        """Run the rows through all layers and write their keys and values.

        Args:
            ids: ``[S, R]`` token ids; ids outside the vocabulary are replaced by 0.
            tables: the result of :meth:`tables` for the rows.
            cache: the cache; positions beyond its capacity are clamped to the last one.
            states: stores hidden states, if it is given.

        Returns:
            ``[S, R, hidden]``, after the final norm.
        """
        c, ops = self.config, self.ops
        count = ids.numel()
        known = torch.where(ids < c.vocab_size, ids, 0).flatten()
        x = self.weights.embedding[F.pad(known, (0, -count % self.row_class))]
        delta: Tensor | None = None
        kept = () if states is None else states.layers
        for i in range(c.layers + 1):
            if states is not None and i in kept:
                x, delta = (x if delta is None else x + delta), None
                states.write(i, x[:count].view(*ids.shape, -1), tables)
            if i < c.layers:
                own = self.weights.layers[i]
                x, delta = layer(
                    x, delta, own, cache.rows[i], ops=ops, tables=tables, sliding=c.sliding[i], eps=c.norm_eps
                )
        _, normed = ops.add_norm(x, delta, self.weights.norm, c.norm_eps)
        return normed[:count].view(*ids.shape, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits ``[..., V]`` of hidden states ``[..., hidden]``."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        padded = F.pad(rows, (0, 0, 0, -len(rows) % self.row_class)) if self.row_class > 1 else rows
        logits = self.ops.product(padded, self.weights.head, None)[: len(rows)]
        return logits.view(*hidden.shape[:-1], -1)

    def tables(self, block: DensePassLayout, cache: KVCache) -> PassTables:
        """Return what all layers of a pass with this layout read."""
        c = self.config
        at = block.positions.clamp(0, self.context - 1)
        mask = windowed = None
        if not self.ops.reads_in_place:
            mask = self._mask(block.seen())
            windowed = mask if c.window is None else self._mask(block.seen(c.window))
        table, pages, places = cache.block_table, None, block.places.clamp(0, cache.positions - 1)
        if table is not None:
            pages, places = page_places(table, block.slots, block.places, cache.rows.shape[3])
        return PassTables(block, places, self._cos[at], self._sin[at], mask, windowed, c.window, pages, table)

    def _mask(self, seen: Tensor) -> Tensor:
        """Return the additive mask ``[S, 1, G R, L]``, where G query heads share a key head."""
        groups = self.config.heads // self.config.kv_heads
        mask = torch.zeros(seen.shape, dtype=self.weights.embedding.dtype, device=self.device)
        mask = mask.masked_fill_(~seen, -torch.inf)
        return mask[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]


def layer(
    x: Tensor,
    delta: Tensor | None,
    w: LayerWeights,
    kv: Tensor,
    *,
    ops: DeviceOps,
    tables: PassTables,
    sliding: bool,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Run one layer.

    Args:
        x: ``[N, hidden]`` hidden states without the last layer's output.
        delta: ``[N, hidden]`` that output; None before the first layer.
        w: the layer's weights.
        kv: ``[slots, 2 KV, capacity, D]`` the layer's KV cache, or its pages; written in place.
        ops: the operations between matrix products.
        tables: the pass's tables.
        sliding: whether the layer has a sliding window.
        eps: epsilon of the norms.

    Returns:
        ``[N, hidden]`` hidden states without this layer's output, and that output.
    """
    x, h = ops.add_norm(x, delta, w.input_norm, eps)
    qkv = ops.product(h, w.qkv, w.qkv_bias)
    queries = ops.rotate_and_store(qkv, kv, w.qk_norm, tables, eps)
    out = ops.attend(queries, kv, tables, sliding=sliding)
    if len(out) < len(x):
        out = F.pad(out, (0, 0, 0, len(x) - len(out)))
    x, h = ops.add_norm(x, ops.product(out, w.o, w.o_bias), w.post_norm, eps)
    gated = ops.gate(ops.product(h, w.gate_up, w.gate_up_bias))
    return x, ops.product(gated, w.down, w.down_bias)
