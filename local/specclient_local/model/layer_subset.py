"""Turn tokens into logits by some of a runner's layers, over the keys and values that runner has written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.kv_cache import KVCache, SlotRows
from specclient_local.model.pass_input import SlotInput


class LayerSubsetCache(KVCache):
    """Some layers' rows of another cache, with lengths of its own.

    Args:
        lender: whose rows they are; written to only behind its own lengths, or where they are put back.
        layers: which.
    """

    def __init__(self, lender: KVCache, layers: Sequence[int]) -> None:
        self.capacity = lender.capacity
        self.rows = lender.rows
        self.lengths = [0] * len(lender.lengths)
        self.moved = [lender.capacity] * len(lender.lengths)
        self._views = [
            SlotRows(lender.rows[layer, slot] for layer in layers) for slot in range(len(lender.lengths))
        ]


class LayerSubsetRunner(DecoderRunner):
    """Some of a runner's layers, in order.

    Args:
        lender: whose layers and cache.
        layers: which.
    """

    def __init__(self, lender: DecoderRunner, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.decoder = lender.decoder.only(layers)
        self.context, self.shared, self.device = lender.context, lender.shared, lender.device
        self.cache = LayerSubsetCache(lender.cache, layers)
        self.causal, self.window, self.sliding_mask = lender.causal, lender.window, lender.sliding_mask

    @torch.inference_mode()
    def predict_tokens(self, slot: int, start: int, tokens: Sequence[int]) -> list[int]:
        """Return the likeliest token after each of some that stand in a slot; its rows are as before.

        Args:
            slot: whose.
            start: position of the first one.
            tokens: ``[N]``, a chunk at most.
        """
        end = start + len(tokens)
        kept = self.cache.rows[:, slot, :, start:end].clone()
        self.cache.lengths[slot] = start
        try:
            (logits,) = self._forward([SlotInput(slot, tokens, every=True)])
            return [int(token) for token in logits.argmax(-1)]
        finally:
            self.cache.rows[:, slot, :, start:end] = kept
