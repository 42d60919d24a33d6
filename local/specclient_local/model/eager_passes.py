"""Forward passes by PyTorch, for every device and dtype.

Rows are computed independently of the number of rows in the pass: projections by a kernel that has been
tested for it (see ``linear_kernels``), and attention over few rows as a batch of single rows over whole
blocks of the cache. A row then has the same logits, bit for bit, as it would have alone. Everything but the
projections runs on one thread in that case, because the thread that computes a row would change its last
bits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.attention_backends import masked_attention
from specclient_local.model.eager_attention import store_and_attend
from specclient_local.model.eager_layer import adapted, eager_layer, norm_kernel
from specclient_local.model.layer_weights import DecoderWeights, LayerChanges
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser, LinearKernel
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.rope import turns as rotations
from specclient_local.model.row_functions import Project, by_row


class EagerPasses:
    """A model's kernels, and its passes.

    Args:
        config: its configuration.
        weights: its weights.
        turns: ``[C, 1, D / 2]`` complex64, rotary embeddings of all positions.
        exact: whether rows must not depend on other rows of the pass; see :class:`KernelChooser`.
        most: maximum rows of a pass that several requests share.
        adapters: the changes of every layer, of each adapter that requests can name by its number.

    Attributes:
        kernels: name of the chosen kernel by weight shape.
    """

    exact_rows = False

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        turns: Tensor,
        *,
        exact: bool,
        most: int,
        adapters: Sequence[Sequence[LayerChanges]] = (),
    ) -> None:
        self._config = config
        self._turns = turns
        local = config.local_rope
        self._local_turns = (
            turns if local is None else rotations(local, config.head_dim, len(turns)).to(turns.device)
        )
        self._exact = exact
        choose = KernelChooser(exact=exact, most=most)
        self._embedding = weights.embedding
        # As a tensor of the embedding's type, which rounds the factor as well.
        self._scale = torch.tensor(config.embedding_scale, dtype=self._embedding.dtype)
        self._layers = [
            eager_layer(config, w, choose, sliding=sliding, changes=[each[i] for each in adapters])
            for i, (w, sliding) in enumerate(zip(weights.layers, config.sliding, strict=True))
        ]
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
        at = torch.tensor(positions, device=device)
        turns = self._turns[at]
        local = turns if self._local_turns is self._turns else self._local_turns[at]
        with masked_attention(device):
            return self._forward(torch.tensor(ids, device=device), (turns, local), spans, wanted, taps)

    def _forward(
        self,
        ids: Tensor,
        turns: tuple[Tensor, Tensor],
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
        turns: tuple[Tensor, Tensor],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        project: Project,
        *,
        taps: HiddenStateTaps | None,
    ) -> Tensor:
        """Run a pass; ``turns`` are those of layers without and with a sliding window."""
        c = self._config
        project = adapted(project, [(s.adapter, s.rows) for s in spans if s.adapter is not None])
        x = self._embedding[ids]
        if c.embedding_scale != 1.0:
            x = x * self._scale.to(x.device)
        if taps is not None:
            _keep(taps, 0, x)
        for i, layer in enumerate(self._layers):
            h = x if layer.input_norm is None else layer.input_norm(x)
            if layer.delta is None:
                seen = self._attention(h, i, turns[layer.sliding], spans, project)
            else:
                seen = layer.delta(h, i, spans, project)
            x = x + (seen if layer.attention_output_norm is None else layer.attention_output_norm(seen))
            h = x if layer.post_norm is None else layer.post_norm(x)
            y = layer.feed_forward(h, project)
            x = x + (y if layer.mlp_output_norm is None else layer.mlp_output_norm(y))
            if taps is not None:
                _keep(taps, i + 1, x)
        if wanted is not None:
            x = x[torch.tensor(wanted, dtype=torch.int64, device=x.device)]
        logits = project(self._head, self._norm(x)) if len(x) else x.new_empty(0, c.vocab_size)
        return logits if c.logit_cap is None else by_row(torch.tanh, logits / c.logit_cap) * c.logit_cap

    def _attention(
        self, h: Tensor, index: int, turns: Tensor, spans: Sequence[PassSpan], project: Project
    ) -> Tensor:
        """Run a layer's attention over the caches of all requests; return its output ``[N, hidden]``."""
        c, layer = self._config, self._layers[index]
        qkv = project(layer.qkv, h).view(len(h), c.heads + 2 * c.kv_heads, c.head_dim)
        self._rotate(qkv[:, : c.heads + c.kv_heads], layer.qk_norm, turns)
        seen = [
            store_and_attend(
                c, qkv[span.rows], span.cache[index], span, span.seen(layer.sliding), sinks=layer.sinks
            )
            for span in spans
        ]
        read = seen[0] if len(seen) == 1 else torch.cat(seen)
        if layer.attention_gate is not None:
            read = read * by_row(torch.sigmoid, project(layer.attention_gate, h))
        return project(layer.o, read)

    def _rotate(self, qk: Tensor, norm: Tensor | None, turns: Tensor) -> None:
        """Normalise (if the model does) and rotate queries and keys ``[N, H + KV, D]`` in place."""
        turned = qk.float()
        if norm is not None:
            turned = self._normalised(turned) * norm
        pairs = torch.view_as_complex(turned.view(*turned.shape[:-1], -1, 2))
        if turned is qk:
            pairs.mul_(turns)
        else:
            qk.copy_(torch.view_as_real(pairs * turns).flatten(-2))

    def _normalised(self, qk: Tensor) -> Tensor:
        """Return queries and keys ``[N, H + KV, D]`` normalised by head, or over all heads together."""
        c = self._config
        if not c.whole_qk_norm:
            return F.rms_norm(qk, (c.head_dim,), None, c.norm_eps)
        whole = [
            F.rms_norm(rows, tuple(rows.shape[1:]), None, c.norm_eps)
            for rows in torch.split(qk, [c.heads, c.kv_heads], 1)
        ]
        return torch.cat(whole, dim=1)


def _keep(taps: HiddenStateTaps, layers: int, x: Tensor) -> None:
    """Store hidden states ``[N, hidden]`` if those after ``layers`` layers are wanted."""
    for i, wanted in enumerate(taps.layers):
        if wanted == layers:
            taps.rows[:, i] = x
