"""EAGLE heads: the hidden state after a token from its embedding and the target's hidden state before it.

EAGLE (arXiv 2401.15077 §3.2): a row combines the embedding of a token with the target's last hidden state one
position before it. One decoder layer computes from it the hidden state at the token's own position, from
which the target's output head predicts the next token. EAGLE-3 (arXiv 2503.01840 §3.1) fuses hidden states of
three depths into the first one, and has an output head of its own over the most likely part of the
vocabulary. P-EAGLE (arXiv 2602.01469) has further layers, and learned inputs for tokens not drafted yet.

Training and drafting (where it is not compiled, see ``native``) share this code. They differ in where keys
and values are kept (``attend``) and in the linear kernels (``HeadKernels``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.kernels import HeadKernels
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.layer_weights import LayerWeights

AttentionFunction = Callable[[Tensor], Tensor]
"""Maps rotated queries, keys and values ``[..., H + 2 KV, D]`` to attention outputs ``[..., H D]``.

It is called once for each layer, in their order.
"""


class HeadLayer:
    """A decoder layer of a head, from the input of its attention on.

    Args:
        config: the layer's configuration.
        weights: the parameters that have the layer's names; ``input_norm`` if the layer normalises its input.
        kernels: the kernels to compute with.

    Attributes:
        input_norm: norm before attention; None if the caller computes the input.
    """

    def __init__(
        self, config: DecoderConfig, weights: EagleWeights | LayerWeights, kernels: HeadKernels
    ) -> None:
        k, eps, w = kernels, config.norm_eps, weights
        self._config, self._qk_norm = config, w.qk_norm
        self._qkv, self._o = k.linear(w.qkv, w.qkv_bias), k.linear(w.o, w.o_bias)
        self._gate_up, self._down = k.linear(w.gate_up, None), k.linear(w.down, None)
        self._post_norm = k.norm(w.post_norm, eps)
        self.input_norm = k.norm(w.input_norm, eps) if isinstance(w, LayerWeights) else None

    def run(self, x: Tensor, h: Tensor, turned: Tensor, attend: AttentionFunction) -> Tensor:
        """Return the layer's output ``[..., width]``.

        Args:
            x: ``[..., width]`` residual.
            h: ``[..., width or 2 width]`` input of the attention.
            turned, attend: see :meth:`EagleHead.step`.
        """
        c = self._config
        qkv = self._qkv(h).view(*h.shape[:-1], -1, c.head_dim)
        both = c.heads + c.kv_heads
        qk = rotated(qkv[..., :both, :], turned, self._qk_norm, c.norm_eps)
        x = x + self._o(attend(torch.cat((qk, qkv[..., both:, :]), dim=-2)))
        gate, up = self._gate_up(self._post_norm(x)).chunk(2, dim=-1)
        return x + self._down(F.silu(gate) * up)


class EagleHead:
    """An EAGLE head as a function of rows.

    Args:
        shape: its shape.
        weights: its parameters.
        lent: the target's shared weights.
        kernels: the kernels to compute with.
    """

    def __init__(
        self,
        shape: EagleShape,
        weights: EagleWeights,
        lent: SharedTargetWeights,
        kernels: HeadKernels | None = None,
    ) -> None:
        self.shape = shape
        self.weights = weights
        self.embedding = lent.embedding if weights.embedding is None else weights.embedding
        k, eps, w = kernels or HeadKernels(), shape.config.norm_eps, weights
        self._fc = k.linear(w.fc, w.fc_bias)
        self._layers = [HeadLayer(shape.config, w, k)]
        self._layers += [HeadLayer(shape.config, layer, k) for layer in w.further]
        self._last_norm = k.norm(lent.norm, lent.eps)
        self._norm = None if w.norm is None else k.norm(w.norm, eps)
        self._token_norm = None if w.token_norm is None else k.norm(w.token_norm, eps)
        self._state_norm = None if w.state_norm is None else k.norm(w.state_norm, eps)
        self._fc_norms = [k.norm(norm, eps) for norm in w.fc_norms]
        self._head = k.linear(lent.head if w.head is None else w.head, None)

    def read(self, features: Tensor) -> Tensor:
        """Return the head's states ``[..., width]`` from hidden states ``[..., depths, target_hidden]``."""
        if self.shape.kind == "eagle":
            return self._last_norm(features[..., 0, :])
        if self.shape.fc_norm:
            each = [norm(x) for norm, x in zip(self._fc_norms, features.unbind(-2), strict=True)]
            return self._fc(torch.cat(each, dim=-1))
        fused = features.flatten(-2)
        return self._fc(self._fc_norms[0](fused) if self.shape.norm_before_fc else fused)

    def step(self, ids: Tensor, states: Tensor, turned: Tensor, attend: AttentionFunction) -> Tensor:
        """Run rows through the layers.

        Args:
            ids: ``[...]`` tokens.
            states: ``[..., width]`` hidden states one position before each token.
            turned: ``[..., 1, D / 2]`` complex, rotary embeddings of the positions.
            attend: attention over the cache; see ``AttentionFunction``.

        Returns:
            ``[..., width]`` hidden states at the tokens' positions, before any norm.
        """
        tokens = self.embedding[ids]
        if self._token_norm is None or self._state_norm is None:
            x = h = self._fc(torch.cat((tokens, states), dim=-1))
        else:
            normed = self._state_norm(states)
            x = normed if self.shape.norm_before_residual else states
            h = torch.cat((self._token_norm(tokens), normed), dim=-1)
        for layer in self._layers:
            x = layer.run(x, h if layer.input_norm is None else layer.input_norm(x), turned, attend)
        return x

    def mask_state(self) -> Tensor:
        """Return the state ``[1, width]`` before a token that is not drafted yet (P-EAGLE)."""
        states = self.weights.mask_states
        if states is None:
            raise ValueError("the head is no P-EAGLE head: it has no state for tokens not drafted yet")
        return self.read(states.view(1, self.shape.depths, self.shape.target_hidden))

    def fed(self, hidden: Tensor) -> Tensor:
        """Return the states that the next step reads, from the output of :meth:`step`."""
        return self._norm(hidden) if self._norm is not None and self.shape.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits after each row: ``[..., draft_vocab]``, or ``[..., V]`` for ``eagle``."""
        return self._head(hidden if self._norm is None else self._norm(hidden))


def rotated(qk: Tensor, turned: Tensor, norm: Tensor | None, eps: float) -> Tensor:
    """Return queries and keys ``[..., H + KV, D]`` normalised, if there is a norm, and rotated.

    Args:
        qk: queries and keys.
        turned: ``[..., 1, D / 2]`` complex, rotary embeddings of the positions.
        norm: ``[H + KV, D]`` factors of each head's norm, and its epsilon ``eps``.
    """
    wide = qk.float()
    if norm is not None:
        wide = F.rms_norm(wide, wide.shape[-1:], None, eps) * norm
    pairs = torch.view_as_complex(wide.reshape(*wide.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turned).flatten(-2).type_as(qk)
