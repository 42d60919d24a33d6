"""Turn token ids, their positions and the cached keys and values into logits: one Llama-family forward pass.

The rows of several requests go through together: as one block through all that looks at a row alone, each
request's over its own cache through attention. Rows are computed independently of how many go through at
once: each projection by a kernel that has shown it (``linear``), and attention over few rows as a batch of
single rows over whole blocks of the cache. A row then has, bit for bit, the logits it would have alone.
All but the projections runs on one thread then: which thread gets a row would change its last bits.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.config import DecoderConfig
from specclient_local.model.linear import ROWS_ALONE, Kernel, KernelChooser
from specclient_local.model.native.passes import native_passes
from specclient_local.model.rope import turns
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


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring rows of a pass that are one request's.

    Attributes:
        rows: which.
        cache: its own, for each layer ``[2 KV, capacity, D]``.
        start: first free position there; its keys and values are written from it on.
        mask: ``[N, L]`` float, 0 or -inf, over the first L cache positions; L counts whole blocks.
        window_mask: the same for layers with a sliding window; None where all see alike.
    """

    rows: slice
    cache: list[Tensor]
    start: int
    mask: Tensor
    window_mask: Tensor | None = None

    def seen(self, sliding: bool) -> Tensor:
        """Return the mask of a layer."""
        return self.mask if self.window_mask is None or not sliding else self.window_mask


class Decoder:
    """A loaded model. It holds no state of any request; the cache is handed in.

    A float32 model on a processor is computed by passes compiled for it, where that is possible.

    Args:
        config: its shape.
        weights: as loaded.
        context: positions it must serve; sizes the rotation table.
        exact: whether rows must not depend on their company; see :class:`KernelChooser`.
        most: rows of the largest pass that several requests share.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        context: int,
        *,
        exact: bool = True,
        most: int = ROWS_ALONE,
    ) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        self._exact = exact
        self._turns = turns(config.rope, config.head_dim, context).to(weights.embedding.device)
        self.embedding = weights.embedding
        self.native = native_passes(config, weights)
        self.kernels: dict[tuple[int, int], str] = {}
        if self.native is not None:
            return
        choose = KernelChooser(exact=exact, most=most)
        self.layers = [_layer(w, choose, config.norm_eps) for w in weights.layers]
        self.norm = norm_kernel(weights.norm, config.norm_eps)
        self.head = choose(weights.head)
        self.kernels = choose.chosen

    def only(self, layers: Sequence[int]) -> Decoder:
        """Return a decoder of some of the layers, in that order, over the same weights."""
        other = copy.copy(self)
        sliding = tuple(self.config.sliding[i] for i in layers)
        other.config = dataclasses.replace(self.config, layers=len(layers), sliding=sliding)
        if self.native is not None:
            other.native = self.native.only(layers)
        else:
            other.layers = [self.layers[i] for i in layers]
        return other

    @property
    def exact_rows(self) -> bool:
        """Whether a row has the same bits in a pass of any size, a prompt's rows too."""
        return self.native is not None

    def turns(self, positions: Tensor | slice) -> Tensor:
        """Return the rotations of some positions, ``[N, 1, D / 2]`` complex."""
        return self._turns[positions]

    def forward(self, ids: Tensor, turns: Tensor, spans: Sequence[Span], wanted: Tensor | slice) -> Tensor:
        """Run N rows through the model and write their keys and values into the caches.

        Args:
            ids: ``[N]`` int64.
            turns: ``[N, 1, D / 2]`` rotations of their positions.
            spans: whose they are, in order.
            wanted: the rows whose logits are wanted.

        Returns:
            ``[wanted, V]``.
        """
        if self.native is not None:
            return self.native.forward(ids, turns, spans, wanted)
        threads = torch.get_num_threads()
        if not self._exact or threads == 1 or any(span.mask.shape[0] > ROWS_ALONE for span in spans):
            return self._run(ids, turns, spans, wanted, lambda kernel, x: kernel(x))

        def project(kernel: Kernel, x: Tensor) -> Tensor:
            torch.set_num_threads(threads)
            y = kernel(x)
            torch.set_num_threads(1)
            return y

        torch.set_num_threads(1)
        try:
            return self._run(ids, turns, spans, wanted, project)
        finally:
            torch.set_num_threads(threads)

    def _run(
        self,
        ids: Tensor,
        turns: Tensor,
        spans: Sequence[Span],
        wanted: Tensor | slice,
        project: Callable[[Kernel, Tensor], Tensor],
    ) -> Tensor:
        c = self.config
        rows = len(ids)
        x = self.embedding[ids]
        for i, layer in enumerate(self.layers):
            h = layer.input_norm(x)
            qkv = project(layer.qkv, h).view(rows, c.heads + 2 * c.kv_heads, c.head_dim)
            self._rotate(qkv[:, : c.heads + c.kv_heads], layer.qk_norm, turns)
            attended = [
                self._attend(qkv[span.rows], span.cache[i], span, span.seen(c.sliding[i])) for span in spans
            ]
            x = x + project(layer.o, attended[0] if len(attended) == 1 else torch.cat(attended))
            h = layer.post_norm(x)
            gate, up = project(layer.gate_up, h).chunk(2, dim=-1)
            x = x + project(layer.down, F.silu(gate) * up)
        x = x[wanted]
        return project(self.head, self.norm(x)) if len(x) else x.new_empty(0, c.vocab_size)

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

    def _attend(self, qkv: Tensor, kv: Tensor, span: Span, mask: Tensor) -> Tensor:
        """Keep a request's keys and values, and attend over its first L positions; ``[N, H D]``.

        Args:
            qkv: ``[N, H + 2 KV, D]``.
            kv: its cache of this layer, ``[2 KV, capacity, D]``.
            span: where its rows go.
            mask: ``[N, L]`` what they see in this layer.
        """
        heads, groups = self.config.heads, self.config.kv_heads
        rows, dim, length = qkv.shape[0], qkv.shape[2], mask.shape[1]
        kv[:, span.start : span.start + rows].copy_(qkv[:, heads:].transpose(0, 1))
        q, keys, values = qkv[:, :heads], kv[:groups, :length], kv[groups:, :length]
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
