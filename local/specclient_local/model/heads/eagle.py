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
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.config import DecoderConfig
from specclient_local.model.eager_passes import norm_kernel
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.linear_kernels import KernelChooser, LinearKernel, plain_kernel
from specclient_local.model.native.matmul import native_matmul

AttentionFunction = Callable[[Tensor], Tensor]
"""Rows' queries, keys and values, turned, ``[..., H + 2 KV, D]``, to what they attend to, ``[..., H D]``."""


@dataclass(frozen=True, slots=True)
class EagleShape:
    """What an EAGLE head is like.

    Attributes:
        kind: ``eagle`` reads the target's last hidden state and head, ``eagle3`` fuses several depths.
        config: of its layer; ``vocab_size`` is the target's.
        target_hidden: width of the target's hidden states.
        taps: after how many of the target's layers hidden states are read; None for the last (``eagle``), or
            for those that everyone takes, see :meth:`tapped`.
        draft_vocab: tokens that its own head covers (``eagle3``).
        norm_before_residual: whether the residual is what ``hidden_norm`` gives.
        norm_output: whether the next step is fed what the last norm gives.
        norm_before_fc: whether fused states are normalised together; ``fc_norm`` one by one.
    """

    kind: Literal["eagle", "eagle3"]
    config: DecoderConfig
    target_hidden: int
    taps: tuple[int, ...] | None = None
    draft_vocab: int = 0
    norm_before_residual: bool = False
    norm_output: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False

    @property
    def width(self) -> int:
        """Numbers of a hidden state of its own."""
        return self.config.hidden_size

    @property
    def parameters(self) -> int:
        """Numbers in its matrices; an embedding of its own counts where its width tells of one."""
        c, three = self.config, self.kind == "eagle3"
        attention = c.head_dim * (c.heads + 2 * c.kv_heads) * (2 if three else 1) + c.head_dim * c.heads
        seen = self.depths * self.target_hidden if three else 2 * self.width
        own = c.vocab_size if self.width != self.target_hidden else 0
        return self.width * (attention + 3 * c.intermediate_size + seen + self.draft_vocab + own)

    @property
    def depths(self) -> int:
        """How many of the target's depths it reads."""
        return 1 if self.kind == "eagle" else 3 if self.taps is None else len(self.taps)

    def tapped(self, layers: int) -> tuple[int, ...]:
        """Return the depths read of a target of so many layers.

        EAGLE-3 heads that name none were trained on those of the reference (SafeAILab/EAGLE; vLLM likewise).
        """
        if self.kind == "eagle":
            return (layers,)
        return (2, layers // 2, layers - 3) if self.taps is None else self.taps


@dataclass(slots=True)
class EagleWeights:
    """Its parameters, fused as a decoder's are: see :class:`specclient_local.model.weights.LayerWeights`.

    Attributes:
        fc: ``[width, 2 width]`` of token and state (``eagle``), or ``[width, depths * target_hidden]``.
        qkv: ``[(H + 2 KV) D, width]``, or for ``eagle3`` ``[…, 2 width]``: token beside state.
        token_norm, state_norm: of the two (``eagle3``).
        norm, head: last norm, and ``[draft_vocab, width]`` (``eagle3``).
        ids: ``[draft_vocab]`` the target's ids of the draft's; None where they are the same.
        embedding: ``[V, width]`` where it is not the target's.
        fc_norms: over the fused states, one for all or one for each.
    """

    fc: Tensor
    qkv: Tensor
    o: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor
    fc_bias: Tensor | None = None
    qkv_bias: Tensor | None = None
    qk_norm: Tensor | None = None
    o_bias: Tensor | None = None
    token_norm: Tensor | None = None
    state_norm: Tensor | None = None
    norm: Tensor | None = None
    head: Tensor | None = None
    ids: Tensor | None = None
    embedding: Tensor | None = None
    fc_norms: tuple[Tensor, ...] = ()

    def reading(self) -> EagleWeights:
        """Return what :meth:`EagleHead.read` needs of them, the large rest empty."""
        none = self.fc.new_empty(0)
        fc = self.fc if self.token_norm is not None else none
        head = None if self.head is None else none
        return replace(self, fc=fc, qkv=none, o=none, gate_up=none, down=none, head=head)


@dataclass(frozen=True, slots=True)
class SharedTargetWeights:
    """What a target lends its heads: ``embedding`` and ``head`` ``[V, hidden]``, ``norm`` and its ``eps``."""

    embedding: Tensor
    norm: Tensor
    head: Tensor
    eps: float

    @classmethod
    def of(cls, target: HiddenStateRunner) -> SharedTargetWeights:
        """Return what a loaded target lends."""
        w = target.weights
        return cls(w.embedding, w.norm, w.head, target.config.norm_eps)


@dataclass(frozen=True, slots=True)
class HeadKernels:
    """What multiplies and normalises; gradients flow through the defaults."""

    linear: Callable[[Tensor, Tensor | None], LinearKernel] = plain_kernel
    norm: Callable[[Tensor, float], LinearKernel] = lambda weight, eps: (
        lambda x: F.rms_norm(x.to(weight.dtype), (x.shape[-1],), weight, eps)
    )


def fast_kernels() -> HeadKernels:
    """Return what computes fastest here; rows may depend on their company, as a draft's may.

    A matrix is laid out when it is first multiplied with: most of a compiled head's never are.
    """
    choose = KernelChooser(exact=False)

    def linear(weight: Tensor, bias: Tensor | None) -> LinearKernel:
        built: list[LinearKernel] = []

        def run(x: Tensor) -> Tensor:
            if not built:
                built.append(native_matmul(weight, bias) or choose(weight, bias))
            return built[0](x)

        return run

    return HeadKernels(linear, norm_kernel)


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
