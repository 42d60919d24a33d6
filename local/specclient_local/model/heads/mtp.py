"""Multi-token prediction heads (MTP): one decoder layer that predicts the token after the next.

A row joins a token's embedding, normalised, with the target's last hidden state one position before it, which
has passed the target's last norm and one more (DeepSeek-V3, arXiv 2412.19437 §2.2). The layer is one of the
target's own kind. The head is trained for one token beyond the target's; further ones are drafted from its
own output, as an EAGLE head drafts them. So it drafts by the same code, and has the methods of
:class:`~specclient_local.model.heads.eagle.EagleHead`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specclient_local.model.eager_layer import EagerLayer, eager_layer
from specclient_local.model.heads.eagle import AttentionFunction, rotated
from specclient_local.model.heads.kernels import HeadKernels
from specclient_local.model.heads.mtp_weights import MtpShape, MtpWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.linear_kernels import KernelChooser, LinearKernel


class MtpHead:
    """An MTP head as a function of rows.

    Args:
        shape: its shape.
        weights: its parameters.
        lent: the target's shared weights.
        fc: kernel of the matrix that joins token and state; torch's product by default.
        layer: whether to build the kernels of its layer and its output head; compiled passes have their own.
    """

    def __init__(
        self,
        shape: MtpShape,
        weights: MtpWeights,
        lent: SharedTargetWeights,
        *,
        fc: LinearKernel | None = None,
        layer: bool = True,
    ) -> None:
        self.shape, self.weights, self.embedding = shape, weights, lent.embedding
        k, eps, config = HeadKernels(), shape.config.norm_eps, shape.config
        self._last_norm = k.norm(lent.norm, lent.eps)
        self._token_norm, self._state_norm = k.norm(weights.token_norm, eps), k.norm(weights.state_norm, eps)
        self._norm = k.norm(weights.norm, eps)
        self._fc = fc or k.linear(weights.fc, None)
        choose = KernelChooser(exact=False)
        self._layer: EagerLayer | None = None
        if layer:
            self._layer = eager_layer(config, weights.layer, choose, sliding=False)
            self._head = choose(lent.head if weights.head is None else weights.head)

    def read(self, features: Tensor) -> Tensor:
        """Return the head's states ``[..., hidden]`` from hidden states ``[..., 1, hidden]``."""
        return self._last_norm(features[..., 0, :])

    def joined(self, ids: Tensor, states: Tensor) -> Tensor:
        """Return the layer's input ``[..., hidden]`` from tokens ``[...]`` and states ``[..., hidden]``."""
        tokens = self._token_norm(self.embedding[ids])
        return self._fc(torch.cat((tokens, self._state_norm(states)), dim=-1))

    def step(self, ids: Tensor, states: Tensor, turned: Tensor, attend: AttentionFunction) -> Tensor:
        """Run rows through the layer; see :meth:`specclient_local.model.heads.eagle.EagleHead.step`."""
        c, layer = self.shape.config, self._layer
        assert layer is not None
        assert layer.input_norm is not None
        assert layer.post_norm is not None
        x = self.joined(ids, states)
        h = layer.input_norm(x)
        qkv = layer.qkv(h).view(*h.shape[:-1], -1, c.head_dim)
        both = c.heads + c.kv_heads
        qk = rotated(qkv[..., :both, :], turned, layer.qk_norm, c.norm_eps)
        read = attend(torch.cat((qk, qkv[..., both:, :]), dim=-2))
        if layer.attention_gate is not None:
            read = read * torch.sigmoid(layer.attention_gate(h))
        x = x + layer.o(read)
        return x + layer.feed_forward(layer.post_norm(x), lambda kernel, rows: kernel(rows))

    def fed(self, hidden: Tensor) -> Tensor:
        """Return the states that the next step reads, from the output of :meth:`step`."""
        return self._norm(hidden) if self.shape.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits ``[..., V]`` after each row."""
        return self._head(self._norm(hidden))
