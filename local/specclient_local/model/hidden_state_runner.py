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
from specclient_local.model.hidden_state_rows import hidden_state_rows
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
        width = len(layers), self.config.hidden_size
        self._features = hidden_state_rows(self.cache, self.slots, positions, width, self.decoder.dtype)

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
        rows = self._features.read(slot, start, end)
        if tuple(layers) == self.layers:
            return rows
        return rows[:, [self.layers.index(layer) for layer in layers]]

    @torch.inference_mode()
    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep the root, at cache position ``root``, and one path of a scored tree; forget the other
        nodes.
        """
        if list(path) != list(range(len(path))):  # before the cache gives memory back
            self._features.move(slot, [root + 1 + node for node in path], root + 1)
        super().keep(slot, root, path)

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot to a slot of length ``start``."""
        super().copy(source, slot, start, end)
        self._features.copy(source, slot, start, end)

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Zero a slot's rows; see :meth:`KVCache.erase`."""
        super().erase(slot)
        self._features.erase(slot)

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run one pass, and store its hidden states at the positions of its keys and values."""
        counts = [part.rows for part in parts]
        starts = [self.cache.lengths[part.slot] for part in parts]
        if len(parts) == 1:
            states = self._features.output(parts[0].slot, starts[0], starts[0] + counts[0])
        else:
            states = self._features.rows.new_empty(sum(counts), *self._features.rows.shape[2:])
        self._pass_features = states
        logits = super().run_pass(parts, unread=unread)
        for part, start, own in zip(parts, starts, torch.split(states, counts), strict=True):
            self._features.write(part.slot, start, own)
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
