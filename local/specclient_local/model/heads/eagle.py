"""Turn tokens and a target's hidden states into guesses at the next ones by one layer: an EAGLE head.

EAGLE (arXiv 2401.15077 §3.2): a row is the embedding of a token beside the target's last hidden state one
place before it; one decoder layer turns it into the hidden state at the token's own place, from which the
target's head reads what follows. EAGLE-3 (arXiv 2503.01840 §3.1): hidden states of three depths are fused
into the first one, and a head of its own covers the likeliest part of the vocabulary.

Training shares this code with drafting where that is not compiled (``native``); they differ in where a row's
keys and values are (``attend``) and in what multiplies matrices (``HeadKernels``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.heads.eagle_weights import EagleShape, EagleWeights
from specclient_local.model.heads.kernels import HeadKernels
from specclient_local.model.heads.target_weights import SharedTargetWeights

AttentionFunction = Callable[[Tensor], Tensor]
"""Rows' queries, keys and values, turned, ``[..., H + 2 KV, D]``, to what they attend to, ``[..., H D]``."""


class EagleHead:
    """An EAGLE head as a function of rows.

    Args:
        shape: what it is like.
        weights: its parameters.
        lent: what the target lends.
        kernels: what computes with them.
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
        self._qkv = k.linear(w.qkv, w.qkv_bias)
        self._o = k.linear(w.o, w.o_bias)
        self._gate_up, self._down = k.linear(w.gate_up, None), k.linear(w.down, None)
        self._post_norm = k.norm(w.post_norm, eps)
        self._last_norm = k.norm(lent.norm, lent.eps)
        self._norm = None if w.norm is None else k.norm(w.norm, eps)
        self._token_norm = None if w.token_norm is None else k.norm(w.token_norm, eps)
        self._state_norm = None if w.state_norm is None else k.norm(w.state_norm, eps)
        self._fc_norms = [k.norm(norm, eps) for norm in w.fc_norms]
        self._head = k.linear(lent.head if w.head is None else w.head, None)

    def read(self, features: Tensor) -> Tensor:
        """Turn the target's hidden states ``[..., depths, target_hidden]`` into its own, ``[..., width]``."""
        if self.shape.kind == "eagle":
            return self._last_norm(features[..., 0, :])
        if self.shape.fc_norm:
            each = [norm(x) for norm, x in zip(self._fc_norms, features.unbind(-2), strict=True)]
            return self._fc(torch.cat(each, dim=-1))
        fused = features.flatten(-2)
        return self._fc(self._fc_norms[0](fused) if self.shape.norm_before_fc else fused)

    def step(self, ids: Tensor, states: Tensor, turned: Tensor, attend: AttentionFunction) -> Tensor:
        """Run rows through the layer.

        Args:
            ids: ``[...]`` tokens.
            states: ``[..., width]`` hidden states one place before each.
            turned: ``[..., 1, D / 2]`` complex, their rotations.
            attend: see ``AttentionFunction``.

        Returns:
            ``[..., width]`` the hidden states at their places, before any norm.
        """
        c = self.shape.config
        tokens = self.embedding[ids]
        if self._token_norm is None or self._state_norm is None:
            x = h = self._fc(torch.cat((tokens, states), dim=-1))
        else:
            normed = self._state_norm(states)
            x = normed if self.shape.norm_before_residual else states
            h = torch.cat((self._token_norm(tokens), normed), dim=-1)
        qkv = self._qkv(h).view(*h.shape[:-1], -1, c.head_dim)
        both = c.heads + c.kv_heads
        qk = self._rotated(qkv[..., :both, :], turned)
        x = x + self._o(attend(torch.cat((qk, qkv[..., both:, :]), dim=-2)))
        gate, up = self._gate_up(self._post_norm(x)).chunk(2, dim=-1)
        return x + self._down(F.silu(gate) * up)

    def fed(self, hidden: Tensor) -> Tensor:
        """Return the states that the next step is fed, of what :meth:`step` gave."""
        return self._norm(hidden) if self._norm is not None and self.shape.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits after each row: ``[..., draft_vocab]``, or of the target's tokens (``eagle``)."""
        return self._head(hidden if self._norm is None else self._norm(hidden))

    def _rotated(self, qk: Tensor, turned: Tensor) -> Tensor:
        wide = qk.float()
        if self.weights.qk_norm is not None:
            eps = self.shape.config.norm_eps
            wide = F.rms_norm(wide, wide.shape[-1:], None, eps) * self.weights.qk_norm
        pairs = torch.view_as_complex(wide.reshape(*wide.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turned).flatten(-2).type_as(qk)
