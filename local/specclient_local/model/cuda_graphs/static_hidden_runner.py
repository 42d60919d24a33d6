"""A runner with static shapes that also keeps the target's hidden states, for heads that draft from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.dense_decoder import HiddenStateWriter
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.weights import DecoderWeights


class StaticHiddenRunner(HiddenStateRunner, StaticRunner):
    """A :class:`StaticRunner` that keeps hidden states of every position in its cache.

    Args:
        decoder: the model.
        weights: its weights.
        slots: maximum number of concurrent sequences.
        context: maximum positions per slot.
        layers: after how many layers hidden states are kept, ascending.
        records, pages: see :class:`StaticRunner`.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        weights: DecoderWeights,
        slots: int,
        context: int,
        layers: tuple[int, ...],
        *,
        records: bool = True,
        pages: int | None = None,
    ) -> None:
        StaticRunner.__init__(self, decoder, weights, slots, context, records=records, pages=pages)
        self.keep_states(weights, layers, positions=self.cache.positions)
        rows, table = self._features.rows, self.cache.block_table
        self.states = HiddenStateWriter(layers, decoder.config.layers, rows, table)

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run one pass; a small one stores its hidden states itself."""
        if self.has_bucket(parts, unread=unread):
            return StaticRunner.run_pass(self, parts, unread=unread)
        return super().run_pass(parts, unread=unread)
