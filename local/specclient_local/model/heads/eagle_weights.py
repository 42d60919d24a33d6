"""The shape and the parameters of an EAGLE head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.layer_weights import LayerWeights


@dataclass(frozen=True, slots=True)
class EagleShape:
    """The shape of an EAGLE head.

    Attributes:
        kind: ``eagle`` reads the target's last hidden state and output head; ``eagle3`` fuses hidden states
            of several depths.
        config: configuration of its layers; ``vocab_size`` is the target's. Only P-EAGLE heads have several.
        target_hidden: width of the target's hidden states.
        taps: numbers of the target's layers after which hidden states are read; None for the default, see
            :meth:`tapped`.
        draft_vocab: number of tokens in its own output head (``eagle3``).
        norm_before_residual: whether the residual is the output of ``hidden_norm`` instead of its input.
        norm_output: whether the next step reads the output of the last norm.
        norm_before_fc: whether the fused states are normalised together; ``fc_norm``: one by one.
        mask_token: id of the token that stands for those not drafted yet (P-EAGLE, see
            :mod:`specclient_local.drafting.parallel_eagle`); None if tokens are drafted one after another.
        block: number of tokens that a P-EAGLE head was trained to draft; 0 if unknown.
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
    mask_token: int | None = None
    block: int = 0

    @property
    def parallel(self) -> bool:
        """Whether one pass drafts all tokens (P-EAGLE)."""
        return self.mask_token is not None

    @property
    def width(self) -> int:
        """Width of its own hidden states."""
        return self.config.hidden_size

    @property
    def parameters(self) -> int:
        """Number of elements of its matrices.

        It has an embedding of its own if its width differs from the target's, and in published P-EAGLE heads.
        """
        c, three = self.config, self.kind == "eagle3"
        read = c.head_dim * (c.heads + 2 * c.kv_heads)
        layer = read + c.head_dim * c.heads + 3 * c.intermediate_size
        seen = self.depths * self.target_hidden if three else 2 * self.width
        own = c.vocab_size if self.width != self.target_hidden or self.parallel else 0
        return self.width * (c.layers * layer + three * read + seen + self.draft_vocab + own)

    @property
    def depths(self) -> int:
        """Number of the target's depths that it reads."""
        return 1 if self.kind == "eagle" else 3 if self.taps is None else len(self.taps)

    def tapped(self, layers: int) -> tuple[int, ...]:
        """Return the depths to read of a target with ``layers`` layers.

        EAGLE-3 heads that name none use those of the reference implementation (SafeAILab/EAGLE; vLLM as
        well).
        """
        if self.kind == "eagle":
            return (layers,)
        return (2, layers // 2, layers - 3) if self.taps is None else self.taps


@dataclass(slots=True)
class EagleWeights:
    """The parameters of an EAGLE head, fused as in :class:`specclient_local.model.weights.LayerWeights`.

    Attributes:
        fc: ``[width, 2 width]`` over token and state (``eagle``), or ``[width, depths * target_hidden]``
            (``eagle3``).
        qkv: ``[(H + 2 KV) D, width]``, or ``[…, 2 width]`` over token and state (``eagle3``).
        token_norm, state_norm: norms of token and state (``eagle3``).
        norm, head: last norm, and output head ``[draft_vocab, width]`` (``eagle3``).
        ids: ``[draft_vocab]`` the target's id of each of the head's tokens; None if they are equal.
        embedding: ``[V, width]`` if it is not the target's.
        fc_norms: norms of the fused states, one for all or one for each.
        mask_states: ``[depths * target_hidden]`` stand for the target's hidden states at tokens that are not
            drafted yet (P-EAGLE).
        further: the layers after the first one (P-EAGLE).
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
    mask_states: Tensor | None = None
    further: tuple[LayerWeights, ...] = ()

    def reading(self) -> EagleWeights:
        """Return the parameters that :meth:`EagleHead.read` needs; the large others are empty."""
        none = self.fc.new_empty(0)
        fc = self.fc if self.token_norm is not None else none
        head = None if self.head is None else none
        return replace(self, fc=fc, qkv=none, o=none, gate_up=none, down=none, head=head, further=())
