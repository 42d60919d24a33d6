"""Medusa heads by compiled code: one call for all heads."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref

import torch
from torch import Tensor

from specclient_local.model.heads.medusa_weights import MedusaShape, MedusaWeights
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights, scratch_for_rows
from specclient_local.model.native.passes import MIN_PARALLEL_PRODUCTS, NativePasses
from specclient_local.model.native.structs import LinearStruct, MedusaStruct


class NativeMedusa:
    """Packed weights of Medusa heads; see :class:`specclient_local.model.heads.medusa.MedusaHeads`.

    Args:
        shape: their shape.
        weights: their parameters, float32 on the CPU; copied.
        lent: the target's shared weights, of which the last norm is used.
        target: the target's passes, whose output head is used if the heads have none.
        run: the compiled library.
    """

    def __init__(
        self,
        shape: MedusaShape,
        weights: MedusaWeights,
        lent: SharedTargetWeights,
        target: NativePasses,
        run: ctypes.CDLL,
    ) -> None:
        self.shape = shape
        self._run = run.specclient_medusa
        self._run.argtypes = [POINTER(MedusaStruct)]
        self._run.restype = None
        self._target = target  # keeps the shared output head alive
        blocks = [pair for head in weights.blocks for pair in head]
        matrices = [*(matrix for matrix, _ in blocks), *weights.heads]
        panels = self._panels = PackedWeights([(m.shape[0], m.shape[1]) for m in matrices])
        self._blocks = (LinearStruct * len(blocks))(*(panels.linear(*pair) for pair in blocks))
        own = [panels.linear(head, None) for head in weights.heads] or [target.head]
        self._own = (LinearStruct * len(own))(*own)
        self._table = MedusaStruct(
            blocks=len(weights.blocks[0]),
            shared=not weights.heads,
            block=self._blocks,
            head=self._own,
            norm=panels.pointer(lent.norm),
            eps=lent.eps,
        )
        self._products = sum(matrix.numel() for matrix, _ in weights.blocks[0])
        self._products += self._own[0].outputs * self._own[0].inputs

    def read(self, features: Tensor) -> Tensor:
        """Return hidden states ``[..., 1, hidden]`` as :meth:`logits` reads them; it applies the norm
        itself.
        """
        return features[..., 0, :]

    def logits(self, states: Tensor, heads: int) -> Tensor:
        """Return the first ``heads`` heads' logits after states ``[..., hidden]``: ``[..., heads, V]``."""
        states = states.contiguous()
        hidden, rows = states.shape[-1], states.numel() // states.shape[-1]
        logits = states.new_empty(*states.shape[:-1], heads, self._own[0].outputs)
        x, h = states.new_empty(2, rows * heads * hidden).unbind()
        table, shared = self._table, rows * heads * self._products >= MIN_PARALLEL_PRODUCTS
        table.heads, table.rows, table.threads = heads, rows, torch.get_num_threads() if shared else 1
        table.given, table.x, table.h = states.data_ptr(), x.data_ptr(), h.data_ptr()
        table.logits = logits.data_ptr()
        converted = scratch_for_rows([*self._blocks, *self._own], rows * heads)
        table.converted = converted.data_ptr()
        self._run(byref(table))
        return logits


def native_medusa(
    shape: MedusaShape, weights: MedusaWeights, lent: SharedTargetWeights, target: object
) -> NativeMedusa | None:
    """Return compiled Medusa heads, or None if the target's passes are not compiled.

    Args:
        shape, weights, lent: see :class:`NativeMedusa`.
        target: the object that computes the target's passes.
    """
    if not isinstance(target, NativePasses):
        return None
    run = library()
    return None if run is None else NativeMedusa(shape, weights, lent, target, run)
