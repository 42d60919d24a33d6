"""A runner that keeps the target's hidden states at some depths, by slot and position, next to its KV cache.

The hidden states of a position are kept, moved and dropped together with its keys and values, so they always
belong to the tokens in the cache. Heads that draft from them read them by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.heads.target_weights import SharedTargetWeights
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.pass_spans import HiddenStateTaps, PassSpan
from specclient_local.model.weights import DecoderWeights


class HiddenStateRunner(DecoderRunner):
    """A :class:`DecoderRunner` that keeps hidden states of every position in its cache.

    Args:
        decoder: the model.
        weights: its weights; embedding, last norm and head are kept for heads to share.
        slots: number of sequences that it holds at once.
        context: number of positions that a slot can hold.
        layers: numbers of layers after which hidden states are kept, ascending; see
            :class:`HiddenStateTaps`.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        weights: DecoderWeights,
        slots: int,
        context: int,
        layers: tuple[int, ...],
    ) -> None:
        super().__init__(decoder, slots, context)
        self.keep_states(weights, layers, positions=context)

    def keep_states(self, weights: DecoderWeights, layers: tuple[int, ...], *, positions: int) -> None:
        """Allocate the hidden states of every slot; the end of construction.

        Args:
            weights: the model's weights.
            layers: after how many layers hidden states are kept, ascending.
            positions: number of positions of a slot.
        """
        self.weights = replace(weights, layers=[])  # the decoder has its own references to the layers
        self.layers = layers
        self._features = torch.zeros(
            (self.slots, positions, len(layers), self.config.hidden_size),
            dtype=self.decoder.dtype,
            device=self.device,
        )

    def shared_weights(self) -> SharedTargetWeights:
        """Return the embedding, the last norm and the output head, for draft heads to share."""
        w = self.weights
        return SharedTargetWeights(w.embedding, w.norm, w.head, self.config.norm_eps)

    def features(self, slot: int, start: int, end: int, layers: Sequence[int]) -> Tensor:
        """Return hidden states of a slot's positions, ``[end - start, len(layers), hidden]``.

        Args:
            slot: the slot.
            start, end: range of positions in use.
            layers: depths to return; must be kept.
        """
        rows = self._features[slot, start:end]
        if tuple(layers) == self.layers:
            return rows
        return rows[:, [self.layers.index(layer) for layer in layers]]

    @torch.inference_mode()
    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep the root, at cache position ``root``, and one path of a scored tree; forget the other
        nodes.
        """
        super().keep(slot, root, path)
        if list(path) != list(range(len(path))):
            source = torch.tensor([root + 1 + node for node in path], device=self.device)
            self._features[slot, root + 1 : root + 1 + len(path)] = self._features[slot, source]

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot to a slot of length ``start``."""
        super().copy(source, slot, start, end)
        self._features[slot, start:end] = self._features[source, start:end]

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Zero a slot's rows; see :meth:`KVCache.erase`."""
        super().erase(slot)
        self._features[slot].zero_()

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run one pass, and store its hidden states at the positions of its keys and values."""
        counts = [part.rows for part in parts]
        starts = [self.cache.lengths[part.slot] for part in parts]
        targets = [
            self._features[part.slot, start : start + rows]
            for part, start, rows in zip(parts, starts, counts, strict=True)
        ]
        if len(parts) == 1:
            self._pass_features = targets[0]
            return super().run_pass(parts, unread=unread)
        self._pass_features = self._features.new_empty(sum(counts), *self._features.shape[2:])
        logits = super().run_pass(parts, unread=unread)
        for place, own in zip(targets, torch.split(self._pass_features, counts), strict=True):
            place.copy_(own)
        return logits

    def compute_logits(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
    ) -> Tensor:
        """Run the rows of a pass, and write their hidden states to ``_pass_features``."""
        return self.decoder.forward(
            ids, positions, spans, wanted, HiddenStateTaps(self.layers, self._pass_features)
        )
