"""Decoder with static shapes: a dense batch of token ids ``[slots, rows]`` to logits, for CUDA graphs.

:mod:`specclient_local.model.decoder` computes request by request; this module computes one dense batch. No
operation depends on an input value, so a pass can be recorded once as a CUDA graph and replayed. Keys and
values are written by index; the attention mask is computed from the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.config import DecoderConfig
from specclient_local.model.rope import turns
from specclient_local.model.weights import DecoderWeights, LayerWeights

_COMPILING: dict[str, Any] = {"fullgraph": True, "recompile_limit": 64, "isolate_recompiles": True}
"""Options of ``torch.compile``. A varying size becomes symbolic from its second value on; size 1 is compiled
separately, so there are few variants. ``isolate_recompiles`` separates the draft's compiled code from the
target's: without it, the draft's width would make the target's width symbolic."""

_NOWHERE = 1 << 40
"""A cache position beyond any capacity: it is clamped to the last position, which is a spare one."""


@dataclass(frozen=True, slots=True)
class DensePassLayout:
    """Slots, positions and mask of a pass, as device tensors: S slots, R rows each, L positions attended.

    Attributes:
        slots: ``[S]`` slot of each batch row's cache.
        places: ``[S, R]`` cache position that a row's keys and values are written to.
        positions: ``[S, R]`` RoPE position of a row.
        seen: ``[S, R, L]`` bool mask of the cache positions a row attends to; at least one.
        first: whether ``slots`` are the first S slots. Their caches are then read in place; otherwise they
            are gathered first, which costs another read and write.
    """

    slots: Tensor
    places: Tensor
    positions: Tensor
    seen: Tensor
    first: bool

    @classmethod
    def chain(cls, slots: Tensor, starts: Tensor, rows: int, length: int, *, first: bool) -> DensePassLayout:
        """Return the layout of ``rows`` consecutive rows per slot that start at position ``starts`` ``[S]``.

        A row with a negative position writes its keys and values to a position that is never read.
        """
        positions = starts[:, None] + torch.arange(rows, device=starts.device)
        columns = torch.arange(length, device=starts.device)
        seen = columns <= positions.clamp(min=0)[..., None]
        return cls(slots, torch.where(positions < 0, _NOWHERE, positions), positions, seen, first)

    @property
    def length(self) -> int:
        """L, the number of positions attended."""
        return self.seen.shape[-1]


class DenseDecoder:
    """A loaded model as a function with static shapes; holds no state of requests.

    Args:
        config: the model's configuration.
        weights: the loaded weights.
        context: maximum positions; the size of the rotation tables.
        compiled: whether layers are compiled by ``torch.compile``, which fuses the operations between
            matrix products. Layers share the compiled code. Compiling a whole pass would take minutes and
            gain nothing, because a recorded pass has no Python calls left to save.
    """

    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, context: int, *, compiled: bool = False
    ) -> None:
        self.config = config
        self.weights = weights
        self.context = context
        self.device = weights.embedding.device
        table = turns(config.rope, config.head_dim, context)
        self._cos, self._sin = (
            table.real.contiguous().to(self.device),
            table.imag.contiguous().to(self.device),
        )
        self._layer: Callable[..., Tensor] = torch.compile(layer, **_COMPILING) if compiled else layer

    def hidden(self, ids: Tensor, block: DensePassLayout, cache: Tensor) -> Tensor:
        """Run the rows through all layers and write their keys and values.

        Args:
            ids: ``[S, R]`` token ids; ids outside the vocabulary are replaced by 0.
            block: layout of the rows.
            cache: ``[layers, slots, 2 KV, capacity, D]``; positions beyond the capacity are clamped to the
                last one.

        Returns:
            ``[S, R, hidden]``, after the final norm.
        """
        c = self.config
        at = block.positions.clamp(0, self.context - 1)
        cos, sin = self._cos[at], self._sin[at]
        places = block.places.clamp(0, cache.shape[3] - 1)
        full = self._mask(block.seen)
        sliding = self._mask(self._within_window(block)) if c.window is not None else full
        x = self.weights.embedding[torch.where(ids < c.vocab_size, ids, 0)]
        for i, weights in enumerate(self.weights.layers):
            x = self._layer(
                x,
                weights,
                cache[i],
                slots=block.slots,
                places=places,
                mask=sliding if c.sliding[i] else full,
                cos=cos,
                sin=sin,
                first=block.first,
                eps=c.norm_eps,
            )
        return F.rms_norm(x, x.shape[-1:], self.weights.norm, c.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits ``[..., V]`` of hidden states ``[..., hidden]``."""
        return F.linear(hidden, self.weights.head)

    def _within_window(self, block: DensePassLayout) -> Tensor:
        """Return the mask restricted to the sliding window.

        Cache position and RoPE position are equal for rows of earlier passes. They differ for tree rows of
        the current pass, but such rows are never farther apart than the pass is long, and the window is
        longer.
        """
        assert self.config.window is not None
        columns = torch.arange(block.length, device=self.device)
        near = columns > block.positions[..., None] - self.config.window
        return block.seen & near

    def _mask(self, seen: Tensor) -> Tensor:
        """Return the additive mask ``[S, 1, G R, L]``, where G query heads share a key head."""
        groups = self.config.heads // self.config.kv_heads
        mask = torch.zeros(seen.shape, dtype=self.weights.embedding.dtype, device=self.device)
        mask = mask.masked_fill_(~seen, -torch.inf)
        return mask[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]


def layer(
    x: Tensor,
    w: LayerWeights,
    kv: Tensor,
    *,
    slots: Tensor,
    places: Tensor,
    mask: Tensor,
    cos: Tensor,
    sin: Tensor,
    first: bool,
    eps: float,
) -> Tensor:
    """Run one layer.

    Args:
        x: ``[S, R, hidden]`` hidden states.
        w: the layer's weights.
        kv: ``[slots, 2 KV, capacity, D]`` the layer's KV cache; written in place.
        slots, places, first: as in :class:`DensePassLayout`.
        mask: ``[S, 1, G R, L]`` additive attention mask.
        cos, sin: ``[S, R, 1, D / 2]`` of the rows' rotations.
        eps: epsilon of the norms.

    Returns:
        ``[S, R, hidden]``.
    """
    batch, rows, size = x.shape
    shared, dim = kv.shape[1] // 2, kv.shape[3]
    h = F.rms_norm(x, (size,), w.input_norm, eps)
    qkv = F.linear(h, w.qkv, w.qkv_bias).view(batch, rows, -1, dim)
    heads = qkv.shape[2] - 2 * shared
    turned = _rotate(qkv[:, :, : heads + shared], w.qk_norm, cos, sin, eps)
    kv[slots[:, None], :, places] = torch.cat((turned[:, :, heads:], qkv[:, :, heads + shared :]), dim=2)
    known = (kv[:batch] if first else kv[slots])[:, :, : mask.shape[-1]]
    # The query heads of one key head become its rows: each key is read once and is not copied.
    queries = turned[:, :, :heads].view(batch, rows, shared, -1, dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
    out = F.scaled_dot_product_attention(queries, known[:, :shared], known[:, shared:], attn_mask=mask)
    out = out.view(batch, shared, -1, rows, dim).permute(0, 3, 1, 2, 4).reshape(batch, rows, heads * dim)
    x = x + F.linear(out, w.o, w.o_bias)
    h = F.rms_norm(x, (size,), w.post_norm, eps)
    gate, up = F.linear(h, w.gate_up, w.gate_up_bias).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, w.down, w.down_bias)


def _rotate(qk: Tensor, norm: Tensor | None, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Apply the norm (if the model has one) and RoPE to adjacent pairs of queries and keys."""
    wide = qk.float()
    if norm is not None:
        wide = F.rms_norm(wide, wide.shape[-1:], None, eps) * norm
    a, b = wide.view(*wide.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).type_as(qk)
