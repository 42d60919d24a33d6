"""An EAGLE head by compiled code: one call for a pass, or for a whole chain."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.heads.eagle import EagleHead
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights
from specclient_local.model.native.passes import NativePasses
from specclient_local.model.native.structs import FusionStruct, LinearStruct, PassStruct
from specclient_local.model.pass_spans import PassSpan


class NativeEagle(NativePasses):
    """Packed weights of an EAGLE head, and its passes; float32 on the CPU.

    Args:
        config: configuration of its layers.
        head: the head. Its parameters are copied, except the embedding.
        turns: ``[C, 1, D / 2]`` complex64, rotary embeddings of all positions.
        target: the target's passes, whose output head is used if the head has none.
        run: the compiled library.

    Attributes:
        given: ``[N, width]`` input states of the next pass.
        hidden: ``[wanted, width]`` output states of the last pass, as the next pass reads them.
    """

    def __init__(
        self, config: DecoderConfig, head: EagleHead, turns: Tensor, target: NativePasses, run: ctypes.CDLL
    ) -> None:
        w, shape = head.weights, head.shape
        self.given = self.hidden = torch.empty(0)
        self._target = target  # keeps the shared output head alive
        joined = [] if w.state_norm is not None else [w.fc]
        own = [] if w.head is None else [w.head]
        further = [m for layer in w.further for m in (layer.qkv, layer.o, layer.gate_up, layer.down)]
        matrices = [w.qkv, w.o, w.gate_up, w.down, *further, *joined, *own]
        self.bind_library(config, turns, run, PackedWeights([(m.shape[0], m.shape[1]) for m in matrices]))
        panels = self._panels
        packed = [self.pack_layer(w)]
        packed += [self.pack_layer(each, input_norm=each.input_norm) for each in w.further]
        fusion = FusionStruct(
            panels.maybe(w.token_norm),
            panels.maybe(w.state_norm),
            panels.linear(w.fc, w.fc_bias) if joined else LinearStruct(),
            shape.norm_before_residual,
            shape.norm_output and w.norm is not None,
        )
        read = target.head if w.head is None else panels.linear(w.head, None)
        self.build_model(head.embedding, w.norm, read, packed, fusion=fusion, vocab_ids=w.ids)

    def set_up_pass(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        logits: Tensor,
        *,
        further: int = 0,
    ) -> PassStruct:
        """Set up a pass with its input and output states."""
        table = super().set_up_pass(ids, positions, spans, wanted, logits, further=further)
        wanted_shape = [len(ids), self._config.hidden_size]
        if list(self.given.shape) != wanted_shape:  # the compiled code reads them unchecked
            raise ValueError(f"states have shape {list(self.given.shape)}; allowed is {wanted_shape}")
        self.given = self.given.contiguous()
        self.hidden = self.given.new_empty(table.wanted, self._config.hidden_size)
        table.given, table.states = self.given.data_ptr(), self.hidden.data_ptr()
        return table


def native_eagle(config: DecoderConfig, head: EagleHead, turns: Tensor, target: object) -> NativeEagle | None:
    """Return compiled passes for an EAGLE head, or None if its target's passes are not compiled.

    Args:
        config, head, turns: see :class:`NativeEagle`.
        target: the object that computes the target's passes.
    """
    if not isinstance(target, NativePasses):
        return None
    run = library()
    return None if run is None else NativeEagle(config, head, turns, target, run)
