"""Runs some of a runner's layers over the keys and values that the runner has written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.kv_cache import KVCache, SlotRows
from specclient_local.model.pass_input import SlotInput


class LayerSubsetCache(KVCache):
    """Some layers of another cache, with its own lengths.

    Args:
        lender: the cache. Its rows are written only after its own lengths, or restored afterwards.
        layers: indices of the layers.
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
        lender: the runner whose layers and cache are used.
        layers: indices of the layers.
    """

    def __init__(self, lender: DecoderRunner, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.decoder = lender.decoder.only(layers)
        self.context, self.shared, self.device = lender.context, lender.shared, lender.device
        self.cache, self.adapters = LayerSubsetCache(lender.cache, layers), lender.adapters
        self.causal, self.window, self.sliding_mask = lender.causal, lender.window, lender.sliding_mask
        self.recurrent_states = None  # layers of recurrent models are not skipped

    @torch.inference_mode()
    def predict_tokens(self, slot: int, start: int, tokens: Sequence[int]) -> list[int]:
        """Return the most likely token after each of N known tokens; the slot's rows are restored.

        Args:
            slot: the slot.
            start: position of the first token.
            tokens: ``[N]``, at most ``MAX_PASS_ROWS``.
        """
        end = start + len(tokens)
        kept = self.cache.rows[:, slot, :, start:end].clone()
        self.cache.lengths[slot] = start
        try:
            (logits,) = self.run_pass([SlotInput(slot, tokens, every=True)])
            return [int(token) for token in logits.argmax(-1)]
        finally:
            self.cache.rows[:, slot, :, start:end] = kept
