"""Runs a multi-token prediction head (MTP) over KV caches of its own."""

from __future__ import annotations

from dataclasses import replace

from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.heads.eagle_runner import (
    SPARE_POSITIONS,
    EagleDecoder,
    EaglePasses,
    EagleRunner,
)
from specclient_local.model.heads.mtp import MtpHead
from specclient_local.model.heads.mtp_weights import MtpShape, MtpWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.native.mtp import native_mtp
from specclient_local.model.rope import turns


class MtpDecoder(EagleDecoder):
    """An MTP head as the decoder of a :class:`DecoderRunner`: one layer without a sliding window.

    Args:
        shape: its shape.
        weights: its parameters.
        lent: the target's shared weights.
        target: the target, whose output head and compiled passes it may use.
        context: number of positions.
        compiled: whether to use compiled passes if the target has them.

    Attributes:
        head: the head that reads the target's hidden states.
    """

    can_draft_chain = False

    def __init__(
        self,
        shape: MtpShape,
        weights: MtpWeights,
        lent: SharedTargetWeights,
        target: TransformerDecoder,
        context: int,
        *,
        compiled: bool = True,
    ) -> None:
        self.config = replace(shape.config, context=context)
        self.embedding, self.dtype = lent.embedding, lent.embedding.dtype
        table = turns(self.config.rope, self.config.head_dim, context).to(self.embedding.device)
        self._turns = table
        native = None
        if compiled:
            native = native_mtp(shape, weights.widened(), lent, table, target.passes)
        if native is None:
            self.head = MtpHead(shape, weights, lent)
            self.passes = EaglePasses(self.head, table)
        else:
            self.head, self.passes = native.reader, native


class MtpRunner(EagleRunner):
    """An MTP head with caches for as many slots as its target has.

    Args:
        shape: its shape.
        weights: its parameters.
        target: the runner whose hidden states it reads.
        compiled: whether to use compiled passes. PyTorch's alone can be recorded.
    """

    def __init__(
        self, shape: MtpShape, weights: MtpWeights, target: HiddenStateRunner, *, compiled: bool = True
    ) -> None:
        lent, context = target.shared_weights(), target.context + SPARE_POSITIONS
        decoder = MtpDecoder(shape, weights, lent, target.decoder, context, compiled=compiled)
        DecoderRunner.__init__(self, decoder, target.slots, context)
        self.decoder, self.head = decoder, decoder.head
