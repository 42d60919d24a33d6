"""Turn a block of token ids, so many rows for each slot, into logits by operations whose shapes never change.

What :mod:`specclient_local.model.decoder` computes request by request is here one dense batch
``[slots, rows]``: no operation depends on a value of the input, so a pass can be recorded once as a CUDA
graph and replayed. Keys and values are written by index; who sees what is a mask made from the inputs.
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
"""A size that varies is a symbol from its second value on, but for 1, which is compiled apart: kinds are few.
A draft's are its own, lest its width make a symbol of the target's."""

_NOWHERE = 1 << 40
"""A place beyond any cache: what is written there lands in its last, spare position."""


@dataclass(frozen=True, slots=True)
class DensePassLayout:
    """Where the rows of a pass stand, all on the device: S slots, R rows each, L positions attended.

    Attributes:
        slots: ``[S]`` whose caches.
        places: ``[S, R]`` position in the cache that a row's keys and values are written to.
        positions: ``[S, R]`` position a row is rotated to.
        seen: ``[S, R, L]`` bool, which places a row sees; at least one.
        first: whether ``slots`` are the first S ones: their caches are then read where they lie, and
            otherwise gathered first, which reads and writes them once more.
    """

    slots: Tensor
    places: Tensor
    positions: Tensor
    seen: Tensor
    first: bool

    @classmethod
    def chain(cls, slots: Tensor, starts: Tensor, rows: int, length: int, *, first: bool) -> DensePassLayout:
        """Put ``rows`` rows of each slot behind its first ``starts`` ``[S]`` positions.

        A row before the first position leaves its keys and values where nothing reads them.
        """
        positions = starts[:, None] + torch.arange(rows, device=starts.device)
        columns = torch.arange(length, device=starts.device)
        seen = columns <= positions.clamp(min=0)[..., None]
        return cls(slots, torch.where(positions < 0, _NOWHERE, positions), positions, seen, first)

    @property
    def length(self) -> int:
        """L."""
        return self.seen.shape[-1]


class DenseDecoder:
    """A loaded model as one function of static shapes; it holds no state of any request.

    Args:
        config: its shape.
        weights: as loaded.
        context: positions it must serve; sizes the rotation tables.
        compiled: whether a layer goes through ``torch.compile``, which fuses all between its products.
            Layers share the compiled code; compiling a pass as a whole takes minutes and gains nothing,
            since a recorded pass has no calls left to save.
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
            ids: ``[S, R]``; those beyond the vocabulary are read as the first one.
            block: where they stand.
            cache: ``[layers, slots, 2 KV, capacity, D]``; a place beyond its capacity is its last one.

        Returns:
            ``[S, R, hidden]``, normalised for the head.
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
        """Return ``[..., V]`` of ``[..., hidden]``."""
        return F.linear(hidden, self.weights.head)

    def _within_window(self, block: DensePassLayout) -> Tensor:
        """Return of what is seen what a sliding layer sees.

        Before a pass place and position are one; in a tree the pass's own rows stand elsewhere, but there
        nothing is farther from a row than the pass is long, and the window is longer.
        """
        assert self.config.window is not None
        columns = torch.arange(block.length, device=self.device)
        near = columns > block.positions[..., None] - self.config.window
        return block.seen & near

    def _mask(self, seen: Tensor) -> Tensor:
        """Return what is added to the scores, ``[S, 1, G R, L]``, for G query heads that share a key head."""
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
    """Run ``[S, R, hidden]`` through one layer whose cache is ``[slots, 2 KV, capacity, D]``.

    Args:
        cos, sin: ``[S, R, 1, D / 2]`` of the rows' rotations; the others as in :class:`DensePassLayout`.
    """
    batch, rows, size = x.shape
    shared, dim = kv.shape[1] // 2, kv.shape[3]
    h = F.rms_norm(x, (size,), w.input_norm, eps)
    qkv = F.linear(h, w.qkv, w.qkv_bias).view(batch, rows, -1, dim)
    heads = qkv.shape[2] - 2 * shared
    turned = _rotate(qkv[:, :, : heads + shared], w.qk_norm, cos, sin, eps)
    kv[slots[:, None], :, places] = torch.cat((turned[:, :, heads:], qkv[:, :, heads + shared :]), dim=2)
    known = (kv[:batch] if first else kv[slots])[:, :, : mask.shape[-1]]
    # The query heads of one key head stand as its rows: each key is read once, and never copied out.
    queries = turned[:, :, :heads].view(batch, rows, shared, -1, dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
    out = F.scaled_dot_product_attention(queries, known[:, :shared], known[:, shared:], attn_mask=mask)
    out = out.view(batch, shared, -1, rows, dim).permute(0, 3, 1, 2, 4).reshape(batch, rows, heads * dim)
    x = x + F.linear(out, w.o, w.o_bias)
    h = F.rms_norm(x, (size,), w.post_norm, eps)
    gate, up = F.linear(h, w.gate_up, w.gate_up_bias).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, w.down, w.down_bias)


def _rotate(qk: Tensor, norm: Tensor | None, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Normalise (where the model does) and turn neighbouring pairs of queries and keys."""
    wide = qk.float()
    if norm is not None:
        wide = F.rms_norm(wide, wide.shape[-1:], None, eps) * norm
    a, b = wide.view(*wide.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).type_as(qk)
