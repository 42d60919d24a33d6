"""The shape and the parameters of an EAGLE head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from specclient_local.model.config import DecoderConfig


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
