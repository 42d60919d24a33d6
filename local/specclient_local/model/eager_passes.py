"""Forward passes by PyTorch, for every device and dtype.

Rows are computed independently of the number of rows in the pass: projections by a kernel that has been
tested for it (see ``linear_kernels``), and attention over few rows as a batch of single rows over whole
blocks of the cache. A row then has the same logits, bit for bit, as it would have alone. Everything but the
projections runs on one thread in that case, because the thread that computes a row would change its last
bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.attention_backends import masked_attention
from specclient_local.model.config import DecoderConfig
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser, LinearKernel
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.weights import DecoderWeights, LayerWeights


@dataclass(frozen=True, slots=True)
class EagerLayer:
    """One layer's kernels and norms."""

    input_norm: LinearKernel
    qkv: LinearKernel
    qk_norm: Tensor | None
    o: LinearKernel
    post_norm: LinearKernel
    gate_up: LinearKernel
    down: LinearKernel


class EagerPasses:
    """A model's kernels, and its passes.

    Args:
        config: its configuration.
        weights: its weights.
        turns: ``[C, 1, D / 2]`` complex64, rotary embeddings of all positions.
        exact: whether rows must not depend on other rows of the pass; see :class:`KernelChooser`.
        most: maximum rows of a pass that several requests share.

    Attributes:
        kernels: name of the chosen kernel by weight shape.
    """

    exact_rows = False

    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, turns: Tensor, *, exact: bool, most: int
    ) -> None:
        self._config = config
        self._turns = turns
        self._exact = exact
        choose = KernelChooser(exact=exact, most=most)
        self._embedding = weights.embedding
        self._layers = [_layer(w, choose, config.norm_eps) for w in weights.layers]
        self._norm = norm_kernel(weights.norm, config.norm_eps)
        self._head = choose(weights.head)
        self.kernels = choose.chosen

    def only(self, config: DecoderConfig, layers: Sequence[int]) -> EagerPasses:
        """Return passes through some of the layers, which share the weights."""
        other = copy.copy(self)
        other._config, other._layers = config, [self._layers[i] for i in layers]
        return other

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,
    ) -> Tensor:
        """Run one pass; see :meth:`specclient_local.model.decoder.TransformerDecoder.forward`."""
        device = self._embedding.device
        turns = self._turns[torch.tensor(positions, device=device)]
        with masked_attention(device):
            return self._forward(torch.tensor(ids, device=device), turns, spans, wanted, taps)

    def _forward(
        self,
        ids: Tensor,
        turns: Tensor,
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None,
    ) -> Tensor:
        """Run a pass; everything but projections on one thread if rows must not depend on each other."""
        threads = torch.get_num_threads()
        if (
            not self._exact
            or threads == 1
            or self._embedding.device.type != "cpu"
            or any(span.mask.shape[0] > MAX_ROWS_PER_REQUEST for span in spans)
        ):
            return self._run(ids, turns, spans, wanted, lambda kernel, x: kernel(x), taps=taps)

        def project(kernel: LinearKernel, x: Tensor) -> Tensor:
            torch.set_num_threads(threads)
            y = kernel(x)
            torch.set_num_threads(1)
            return y

        torch.set_num_threads(1)
        try:
            return self._run(ids, turns, spans, wanted, project, taps=taps)
        finally:
            torch.set_num_threads(threads)

    def _run(
        self,
        ids: Tensor,
        turns: Tensor,
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        project: Callable[[LinearKernel, Tensor], Tensor],
        *,
        taps: HiddenStateTaps | None,
    ) -> Tensor:
        c = self._config
        rows = len(ids)
        x = self._embedding[ids]
        if taps is not None:
            _keep(taps, 0, x)
        for i, layer in enumerate(self._layers):
            h = layer.input_norm(x)
            qkv = project(layer.qkv, h).view(rows, c.heads + 2 * c.kv_heads, c.head_dim)
            self._rotate(qkv[:, : c.heads + c.kv_heads], layer.qk_norm, turns)
            seen = [
                store_and_attend(c, qkv[span.rows], span.cache[i], span, span.seen(c.sliding[i]))
                for span in spans
            ]
            x = x + project(layer.o, seen[0] if len(seen) == 1 else torch.cat(seen))
            h = layer.post_norm(x)
            gate, up = project(layer.gate_up, h).chunk(2, dim=-1)
            x = x + project(layer.down, F.silu(gate) * up)
            if taps is not None:
                _keep(taps, i + 1, x)
        if wanted is not None:
            x = x[torch.tensor(wanted, dtype=torch.int64, device=x.device)]
        return project(self._head, self._norm(x)) if len(x) else x.new_empty(0, c.vocab_size)

    def _rotate(self, qk: Tensor, norm: Tensor | None, turns: Tensor) -> None:
        """Normalise (if the model does) and rotate queries and keys ``[N, H + KV, D]`` in place."""
        turned = qk.float()
        if norm is not None:
            turned = F.rms_norm(turned, (self._config.head_dim,), None, self._config.norm_eps) * norm
        pairs = torch.view_as_complex(turned.view(*turned.shape[:-1], -1, 2))
        if turned is qk:
            pairs.mul_(turns)
        else:
            qk.copy_(torch.view_as_real(pairs * turns).flatten(-2))


def store_and_attend(config: DecoderConfig, qkv: Tensor, kv: Tensor, span: PassSpan, mask: Tensor) -> Tensor:
    """Store a request's keys and values, and attend over its first L positions; return ``[N, H D]``.

    Args:
        config: the model's configuration.
        qkv: ``[N, H + 2 KV, D]``.
        kv: the request's cache of this layer, ``[2 KV, capacity, D]``.
        span: the request's rows.
        mask: ``[N, L]`` additive mask for this layer.
    """
    heads, groups = config.heads, config.kv_heads
    rows, dim, length = qkv.shape[0], qkv.shape[2], mask.shape[1]
    kv[:, span.start : span.start + rows].copy_(qkv[:, heads:].transpose(0, 1))
    q, keys, values = qkv[:, :heads], kv[:groups, :length], kv[groups:, :length]
    if rows <= MAX_ROWS_PER_REQUEST:
        # The N rows are the batch, and the query heads that share a key head are its rows.
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


def norm_kernel(weight: Tensor, eps: float) -> LinearKernel:
    """Return the RMS norm with a weight.

    In float32 on the CPU it uses the Euclidean norm, √(‖x‖² + n·eps), with half the calls of PyTorch's
    composite. Otherwise PyTorch's own, which accumulates in float32.
    """
    size = len(weight)
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return lambda x: F.rms_norm(x, (size,), weight, eps)
    scaled, floor = weight * size**0.5, torch.tensor((size * eps) ** 0.5)

    def norm(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(floor)).mul_(scaled)

    return norm


def _keep(taps: HiddenStateTaps, layers: int, x: Tensor) -> None:
    """Store hidden states ``[N, hidden]`` if those after ``layers`` layers are wanted."""
    for i, wanted in enumerate(taps.layers):
        if wanted == layers:
            taps.rows[:, i] = x


def _layer(w: LayerWeights, choose: KernelChooser, eps: float) -> EagerLayer:
    return EagerLayer(
        input_norm=norm_kernel(w.input_norm, eps),
        qkv=choose(w.qkv, w.qkv_bias),
        qk_norm=w.qk_norm,
        o=choose(w.o, w.o_bias),
        post_norm=norm_kernel(w.post_norm, eps),
        gate_up=choose(w.gate_up, w.gate_up_bias),
        down=choose(w.down, w.down_bias),
    )
