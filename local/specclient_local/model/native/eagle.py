"""Turn an EAGLE head's tokens and states into one call of the compiled library: a pass, or a whole chain."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.native.build import library
from specclient_local.model.native.passes import NativePasses
from specclient_local.model.native.structs import FusionStruct, LinearStruct, PassStruct
from specclient_local.model.pass_spans import PassSpan


class NativeEagle(NativePasses):
    """An EAGLE head's weights in panels, and its passes; in float32 on a processor.

    Args:
        config: of its layer.
        head: whose parameters are copied, but for the embedding.
        turns: ``[C, 1, D / 2]`` complex64, the rotations of all positions.
        target: lends its head where there is no own one.
        run: the compiled library.

    Attributes:
        given: ``[N, width]`` states of the rows of the next pass.
        hidden: ``[wanted, width]`` states that the last one gave, as the next one is fed them.
    """

    def __init__(
        self, config: DecoderConfig, head: EagleHead, turns: Tensor, target: NativePasses, run: ctypes.CDLL
    ) -> None:
        w, shape = head.weights, head.shape
        self.given = self.hidden = torch.empty(0)
        self._target = target  # where the head that it lends lies
        joined = [] if w.state_norm is not None else [w.fc]
        own = [] if w.head is None else [w.head]
        self._begin(config, turns, run, [w.qkv, w.o, w.gate_up, w.down, *joined, *own])
        panels = self._panels
        layer = self._layer(w)
        fusion = FusionStruct(
            panels.maybe(w.token_norm),
            panels.maybe(w.state_norm),
            panels.linear(w.fc, w.fc_bias) if joined else LinearStruct(),
            shape.norm_before_residual,
            shape.norm_output and w.norm is not None,
        )
        read = target.head if w.head is None else panels.linear(w.head, None)
        self._end(head.embedding, w.norm, read, [layer], fusion=fusion, vocab_ids=w.ids)

    def _pass(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        logits: Tensor,
        *,
        further: int = 0,
    ) -> PassStruct:
        """Lay out a pass with the states that it is given, and those that it gives."""
        told = super()._pass(ids, positions, spans, wanted, logits, further=further)
        if self.given.shape != (len(ids), self._config.hidden_size):  # the library reads them unchecked
            raise ValueError(f"states of shape {list(self.given.shape)} are given to {len(ids)} rows")
        self.given = self.given.contiguous()
        self.hidden = self.given.new_empty(told.wanted, self._config.hidden_size)
        told.given, told.states = self.given.data_ptr(), self.hidden.data_ptr()
        return told


def native_eagle(config: DecoderConfig, head: EagleHead, turns: Tensor, target: object) -> NativeEagle | None:
    """Return compiled passes for an EAGLE head; None where its target's are not.

    Args:
        config, head, turns: see :class:`NativeEagle`.
        target: what computes the target's passes.
    """
    if not isinstance(target, NativePasses):
        return None
    run = library()
    return None if run is None else NativeEagle(config, head, turns, target, run)
