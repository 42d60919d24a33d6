"""A multi-token prediction head (MTP) by compiled code: its layer is that of a decoder of one layer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_int64, c_void_p

import torch
from torch import Tensor

from specclient_local.model.heads.mtp import MtpHead
from specclient_local.model.heads.mtp_weights import MtpShape, MtpWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights, can_be_packed, scratch_for_rows
from specclient_local.model.native.passes import MIN_PARALLEL_PRODUCTS, NativePasses, matrix_shapes
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan


class NativeMtp(NativePasses):
    """Packed weights of an MTP head, and its passes.

    Token and state are joined first; the joined rows then take the place of the embedding's.

    Args:
        shape: the head's shape.
        weights: its parameters.
        lent: the target's shared weights.
        target: the target's passes, whose output head is used if the head has none.
        turns: ``[C, 1, D / 2]`` complex64, rotary embeddings of all positions.
        run: the compiled library.

    Attributes:
        reader: the head without its layer, which reads the target's hidden states.
        given: ``[N, hidden]`` input states of the next pass.
        hidden: ``[wanted, hidden]`` output states of the last pass, as the next pass reads them.
    """

    def __init__(
        self,
        shape: MtpShape,
        weights: MtpWeights,
        lent: SharedTargetWeights,
        target: NativePasses,
        *,
        turns: Tensor,
        run: ctypes.CDLL,
    ) -> None:
        config, layer = shape.config, weights.layer
        self.given = self.hidden = torch.empty(0)
        self._target = target  # keeps the shared output head alive
        own = [] if weights.head is None else [weights.head]
        matrices = [*matrix_shapes(config)[1:], *((m.shape[0], m.shape[1]) for m in (weights.fc, *own))]
        self.bind_library(config, turns, run, PackedWeights(matrices, target.rounded_to))
        self._fc = self._panels.linear(weights.fc, None)
        self._product = run.specclient_linear
        self._product.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64]
        self._product.restype = None
        head = target.head if weights.head is None else self._panels.linear(weights.head, None)
        packed = self.pack_layer(
            layer,
            input_norm=layer.input_norm,
            gate_up_bias=layer.gate_up_bias,
            down_bias=layer.down_bias,
        )
        self.build_model(lent.embedding, weights.norm, head, [packed])
        self.reader = MtpHead(shape, weights.reading(), lent, fc=self._join, layer=False)

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
        taps: HiddenStateTaps | None = None,  # noqa: ARG002 - no head drafts from a draft
    ) -> Tensor:
        """Run one pass; see :meth:`specclient_local.model.decoder.TransformerDecoder.forward`."""
        expected = [len(ids), self._config.hidden_size]
        if list(self.given.shape) != expected:  # the compiled code reads joined rows unchecked
            raise ValueError(f"states have shape {list(self.given.shape)}; allowed is {expected}")
        joined = self.reader.joined(torch.tensor(ids), self.given)
        self._model.embedding = joined.data_ptr()
        rows = torch.empty(len(ids), 1, self._config.hidden_size)
        kept = HiddenStateTaps((1,), rows)
        logits = super().forward(range(len(ids)), positions, spans, wanted, kept)
        hidden = rows[:, 0] if wanted is None else rows[torch.tensor(wanted, dtype=torch.int64), 0]
        self.hidden = self.reader.fed(hidden)
        return logits

    def _join(self, x: Tensor) -> Tensor:
        """Multiply rows ``[N, 2 hidden]`` by the matrix that joins token and state."""
        x = x.contiguous()
        rows, outputs = len(x), self._config.hidden_size
        y = x.new_empty(rows, outputs)
        threads = torch.get_num_threads() if rows * 2 * outputs**2 >= MIN_PARALLEL_PRODUCTS else 1
        scratch = scratch_for_rows([self._fc], rows)
        self._product(addressof(self._fc), x.data_ptr(), rows, y.data_ptr(), scratch.data_ptr(), threads)
        return y


def native_mtp(
    shape: MtpShape, weights: MtpWeights, lent: SharedTargetWeights, turns: Tensor, target: object
) -> NativeMtp | None:
    """Return compiled passes for an MTP head; None if its target's passes are not compiled.

    Args:
        shape, weights, lent, turns: see :class:`NativeMtp`.
        target: the object that computes the target's passes.
    """
    run = library() if isinstance(target, NativePasses) and shape.config.llama_layout else None
    if run is None or not isinstance(target, NativePasses):
        return None
    layer = weights.layer
    packable = all(map(can_be_packed, (layer.qkv, layer.o, layer.gate_up, layer.down, weights.fc)))
    return NativeMtp(shape, weights, lent, target, turns=turns, run=run) if packable else None
