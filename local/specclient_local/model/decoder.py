"""Turn token ids, their positions and the cached keys and values into logits: one Llama-family forward pass.

Rows are computed independently of how many go through at once: each projection by a kernel that
has shown it (``linear``), and attention over few rows as a batch of single rows over whole blocks of
the cache. One row of K + 1 then has, bit for bit, the logits it would have alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.config import DecoderConfig, Rope
from specclient_local.model.linear import ROWS_ALONE, Kernel, KernelChooser
from specclient_local.model.weights import LayerWeights, Weights


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's kernels and norms."""

    input_norm: Kernel
    qkv: Kernel
    qk_norm: Tensor | None
    o: Kernel
    post_norm: Kernel
    gate_up: Kernel
    down: Kernel


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Return the angle each pair turns per position, ``[D / 2]`` float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return inverse / rope.factor
    if rope.kind == "default":
        return inverse
    # Llama 3: wavelengths beyond the first context are stretched, short ones kept, between them blended.
    wavelength = 2 * math.pi / inverse
    low = rope.original_context / rope.low_freq_factor
    high = rope.original_context / rope.high_freq_factor
    share = (rope.original_context / wavelength - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - share) * inverse / rope.factor + share * inverse
    stretched = torch.where(wavelength > low, inverse / rope.factor, inverse)
    between = (wavelength >= high) & (wavelength <= low)
    return torch.where(between, blended, stretched)


class Decoder:
    """A loaded model. It holds no state of any request; the cache is handed in.

    Args:
        config: its shape.
        weights: as loaded.
        context: positions it must serve; sizes the rotation table.
        exact: whether rows must not depend on their company; see :class:`KernelChooser`.
    """

    def __init__(self, config: DecoderConfig, weights: Weights, context: int, *, exact: bool = True) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        choose = KernelChooser(exact=exact)
        self.embedding = weights.embedding
        self.layers = [_layer(w, choose, config.norm_eps) for w in weights.layers]
        self.norm = norm_kernel(weights.norm, config.norm_eps)
        self.head = choose(weights.head)
        self.kernels = choose.chosen
        angles = torch.outer(torch.arange(context).float(), frequencies(config.rope, config.head_dim))
        self._turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)  # [C, 1, D / 2]

    def turns(self, positions: Tensor | slice) -> Tensor:
        """Return the rotations of some positions, ``[N, 1, D / 2]`` complex."""
        return self._turns[positions]

    def forward(  # noqa: PLR0917 - a pass is these six things
        self, ids: Tensor, turns: Tensor, cache: list[Tensor], start: int, mask: Tensor, logits_from: int
    ) -> Tensor:
        """Run N rows through the model and write their keys and values at ``start`` on.

        Args:
            ids: ``[N]`` int64.
            turns: ``[N, 1, D / 2]`` rotations of their positions.
            cache: for each layer ``[2 KV, capacity, D]``.
            start: first free position of the cache.
            mask: ``[N, L]`` float, 0 or -inf, over the first L cache positions; L counts whole blocks.
            logits_from: first row whose logits are wanted; N for none.

        Returns:
            ``[N - logits_from, V]``.
        """
        c = self.config
        rows = len(ids)
        x = self.embedding[ids]
        for layer, kv in zip(self.layers, cache, strict=True):
            h = layer.input_norm(x)
            qkv = layer.qkv(h).view(rows, c.heads + 2 * c.kv_heads, c.head_dim)
            self._rotate(qkv[:, : c.heads + c.kv_heads], layer.qk_norm, turns)
            kv[:, start : start + rows].copy_(qkv[:, c.heads :].transpose(0, 1))
            x = x + layer.o(self._attend(qkv[:, : c.heads], kv, mask))
            h = layer.post_norm(x)
            gate, up = layer.gate_up(h).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        x = self.norm(x[logits_from:])
        return self.head(x) if logits_from < rows else x.new_empty(0, c.vocab_size)

    def _rotate(self, qk: Tensor, norm: Tensor | None, turns: Tensor) -> None:
        """Normalise (where the model does) and turn queries and keys in place; ``[N, H + KV, D]``."""
        turned = qk.float()
        if norm is not None:
            turned = F.rms_norm(turned, (self.config.head_dim,), None, self.config.norm_eps) * norm
        pairs = torch.view_as_complex(turned.view(*turned.shape[:-1], -1, 2))
        if turned is qk:
            pairs.mul_(turns)
        else:
            qk.copy_(torch.view_as_real(pairs * turns).flatten(-2))

    def _attend(self, q: Tensor, kv: Tensor, mask: Tensor) -> Tensor:
        """Attend ``[N, H, D]`` over the first L positions of ``[2 KV, capacity, D]``; ``[N, H D]``."""
        rows, heads, dim = q.shape
        length, groups = mask.shape[1], self.config.kv_heads
        keys, values = kv[:groups, :length], kv[groups:, :length]
        if rows <= ROWS_ALONE:
            # The query heads that share a key head stand as its rows, the N rows as the batch.
            out = F.scaled_dot_product_attention(
                q.reshape(rows, groups, heads // groups, dim),
                keys.expand(rows, -1, -1, -1),
                values.expand(rows, -1, -1, -1),
                attn_mask=mask[:, None, None, :],
            )
            return out.reshape(rows, heads * dim)
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, enable_gqa=groups < heads
        )
        return out[0].transpose(0, 1).reshape(rows, heads * dim)


def norm_kernel(weight: Tensor, eps: float) -> Kernel:
    """Return the RMS norm over ``weight``'s size.

    In float32 by way of the Euclidean norm, √(‖x‖² + n·eps): half the calls of the library's composite
    on a CPU. In half precision by the library, which accumulates in float32.
    """
    size = len(weight)
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return lambda x: F.rms_norm(x, (size,), weight, eps)
    scaled, floor = weight * size**0.5, torch.tensor((size * eps) ** 0.5)

    def norm(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(floor)).mul_(scaled)

    return norm


def _layer(w: LayerWeights, choose: KernelChooser, eps: float) -> Layer:
    return Layer(
        input_norm=norm_kernel(w.input_norm, eps),
        qkv=choose(w.qkv, w.qkv_bias),
        qk_norm=w.qk_norm,
        o=choose(w.o, w.o_bias),
        post_norm=norm_kernel(w.post_norm, eps),
        gate_up=choose(w.gate_up, w.gate_up_bias),
        down=choose(w.down, w.down_bias),
    )
