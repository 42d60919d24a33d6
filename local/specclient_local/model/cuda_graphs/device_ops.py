"""The operations of a recorded pass: those of a layer, and those on its logits, by PyTorch.

:mod:`specclient_local.model.cuda_graphs.triton_ops` has the same operations as Triton kernels. Those of a
layer work on a batch of N rows, of which the first S × R belong to S slots; the others are padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.attention_backends import masked_attention
from specclient_local.model.cuda_graphs.device_verify import (
    SamplingTensors,
    batch_probabilities,
    draw_tokens,
)
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.quantization import linear


@dataclass(frozen=True, slots=True)
class PassTables:
    """The inputs that all layers of a pass share.

    Attributes:
        layout: the pass's rows.
        places: ``[S, R]`` cache positions to write, within the capacity; in a cache of pages, places within
            the rows' pages.
        cos, sin: ``[S, R, 1, D / 2]`` of the rows' rotations.
        mask: additive mask ``[S, 1, G R, L]`` of layers without a window; None where kernels need none.
        window_mask: the mask of layers with a sliding window.
        window: width of the sliding window; None if there is none.
        pages: ``[S, R]`` pages to write to; None for a cache whose slots' positions are neighbours.
        block_table: the pages of each slot, ``[slots, pages]``; None likewise.
    """

    layout: DensePassLayout
    places: Tensor
    cos: Tensor
    sin: Tensor
    mask: Tensor | None
    window_mask: Tensor | None
    window: int | None
    pages: Tensor | None = None
    block_table: Tensor | None = None

    @property
    def stored(self) -> Tensor:
        """The first index into a cache of each row that is written: its slot ``[S, 1]``, or page
        ``[S, R]``.
        """
        return self.layout.slots[:, None] if self.pages is None else self.pages

    def split(self, count: int) -> list[PassTables]:
        """Return ``count`` passes of the same number of slots, of which these are the tables in order."""
        masks, windows = _split(self.mask, count), _split(self.window_mask, count)
        parts = zip(
            self.layout.split(count),
            *(tensor.chunk(count) for tensor in (self.places, self.cos, self.sin)),
            masks,
            windows,
            _split(self.pages, count),
            strict=True,
        )
        return [
            PassTables(layout, places, cos, sin, mask, window_mask, self.window, pages, self.block_table)
            for layout, places, cos, sin, mask, window_mask, pages in parts
        ]


def _split(tensor: Tensor | None, count: int) -> Sequence[Tensor | None]:
    return [None] * count if tensor is None else tensor.chunk(count)


class DeviceOps(Protocol):
    """The operations of a recorded pass."""

    reads_in_place: bool
    """Whether attention reads each slot's used positions in place: no length and no gathered caches."""

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` and its RMS norm, ``[N, hidden]`` each; ``x`` may be changed."""
        ...

    def rotate_and_store(
        self, qkv: Tensor, kv: Tensor, norm: Tensor | None, tables: PassTables, eps: float
    ) -> Tensor:
        """Normalise (if the model does) and rotate queries and keys; write keys and values to the cache.

        Args:
            qkv: ``[N, (H + 2 KV) D]``.
            kv: ``[slots, 2 KV, capacity, D]`` the layer's cache, or its pages; written in place.
            norm: ``[H + KV, D]`` weights of the queries' and keys' norm.
            tables: the pass's tables.
            eps: epsilon of the norm.

        Returns:
            ``[S, R, H, D]`` queries.
        """
        ...

    def attend(self, queries: Tensor, kv: Tensor, tables: PassTables, *, sliding: bool) -> Tensor:
        """Return the attention's outputs ``[S R, H D]`` of queries ``[S, R, H, D]`` over the cache."""
        ...

    def gate(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` ``[N, ff]`` of ``[N, 2 ff]``."""
        ...

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x @ weight.T + bias``, ``[N, out]`` of ``[N, in]`` and ``[out, in]``."""
        ...

    def largest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids of the largest logits, the first of equal ones, and those logits, of ``[S, N, V]``.

        A row with a NaN has NaN as its largest logit.
        """
        ...

    def probabilities(self, logits: Tensor, shaping: SamplingTensors) -> tuple[Tensor, Tensor]:
        """Return :func:`batch_probabilities` ``[S, N, V]``, and the largest logits ``[S, N]``."""
        ...

    def draw(self, p: Tensor, uniform: Tensor) -> Tensor:
        """Return :func:`draw_tokens` of probabilities ``[S, V]`` and numbers ``[S]``."""
        ...


class TorchOps:
    """The operations by PyTorch, for every device and dtype."""

    reads_in_place = False

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        x = x if delta is None else x + delta
        return x, F.rms_norm(x, x.shape[-1:], weight, eps)

    def rotate_and_store(
        self, qkv: Tensor, kv: Tensor, norm: Tensor | None, tables: PassTables, eps: float
    ) -> Tensor:
        """See :class:`DeviceOps`."""
        batch, rows = tables.places.shape
        shared, dim = kv.shape[1] // 2, kv.shape[3]
        own = qkv[: batch * rows].view(batch, rows, -1, dim)
        heads = own.shape[2] - 2 * shared
        turned = _rotate(own[:, :, : heads + shared], norm, tables.cos, tables.sin, eps)
        written = torch.cat((turned[:, :, heads:], own[:, :, heads + shared :]), dim=2)
        kv[tables.stored, :, tables.places] = written
        return turned[:, :, :heads]

    def attend(self, queries: Tensor, kv: Tensor, tables: PassTables, *, sliding: bool) -> Tensor:
        """See :class:`DeviceOps`."""
        batch, rows, heads, dim = queries.shape
        shared, layout = kv.shape[1] // 2, tables.layout
        mask = tables.window_mask if sliding else tables.mask
        known = _in_order(kv, tables, batch)[:, :, : layout.length]
        # The query heads of one key head become its rows: each key is read once and is not copied.
        grouped = queries.view(batch, rows, shared, -1, dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
        keys, values = known[:, :shared], known[:, shared:]
        with masked_attention(kv.device):
            out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        out = out.view(batch, shared, -1, rows, dim).permute(0, 3, 1, 2, 4)
        return out.reshape(batch * rows, heads * dim)

    def gate(self, gate_up: Tensor) -> Tensor:
        """See :class:`DeviceOps`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See :class:`DeviceOps`."""
        return linear(x, weight, bias)

    def largest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        return logits.argmax(-1), logits.amax(-1)

    def probabilities(self, logits: Tensor, shaping: SamplingTensors) -> tuple[Tensor, Tensor]:
        """See :class:`DeviceOps`."""
        return batch_probabilities(logits, shaping), logits.amax(-1)

    def draw(self, p: Tensor, uniform: Tensor) -> Tensor:
        """See :class:`DeviceOps`."""
        return draw_tokens(p, uniform)


def _in_order(kv: Tensor, tables: PassTables, batch: int) -> Tensor:
    """Return the caches of a pass's slots with their positions in order, ``[S, 2 KV, capacity, D]``."""
    layout = tables.layout
    if tables.block_table is None:
        return kv[:batch] if layout.first else kv[layout.slots]
    return kv[tables.block_table[layout.slots]].transpose(1, 2).flatten(2, 3)


def _rotate(qk: Tensor, norm: Tensor | None, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Apply the norm (if the model has one) and RoPE to adjacent pairs of queries and keys."""
    wide = qk.float()
    if norm is not None:
        wide = F.rms_norm(wide, wide.shape[-1:], None, eps) * norm
    a, b = wide.view(*wide.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).type_as(qk)
