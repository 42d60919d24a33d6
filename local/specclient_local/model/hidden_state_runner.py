"""Turn passes of a target into its hidden states at some depths, kept by slot and position beside its caches.

A position's features stay, move and go as its keys and values do, so after any history of guesses they are
those of the tokens that stand there. Whoever drafts from them reads them by position.
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
        weights: its weights, of which embedding, last norm and head are kept for heads to borrow.
        slots: sequences it holds at once.
        context: positions a slot can hold.
        layers: after how many layers hidden states are kept, ascending; see :class:`HiddenStateTaps`.
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
        self.weights = replace(weights, layers=[])  # the decoder has what it needs of them
        self.layers = layers
        self._features = torch.zeros(
            (slots, context, len(layers), decoder.config.hidden_size), dtype=decoder.dtype, device=self.device
        )

    def shared_weights(self) -> SharedTargetWeights:
        """Return the embedding, the last norm and the output head, for draft heads to share."""
        w = self.weights
        return SharedTargetWeights(w.embedding, w.norm, w.head, self.config.norm_eps)

    def features(self, slot: int, start: int, end: int, layers: Sequence[int]) -> Tensor:
        """Return hidden states of a slot's positions, ``[end - start, len(layers), hidden]``.

        Args:
            slot: whose cache.
            start, end: positions in use.
            layers: of those that are kept.
        """
        rows = self._features[slot, start:end]
        if tuple(layers) == self.layers:
            return rows
        return rows[:, [self.layers.index(layer) for layer in layers]]

    @torch.inference_mode()
    def keep(self, slot: int, root: int, path: Sequence[int]) -> None:
        """Keep of a scored tree the root, at cache position ``root``, and the nodes of one path down."""
        super().keep(slot, root, path)
        if list(path) != list(range(len(path))):
            source = torch.tensor([root + 1 + node for node in path], device=self.device)
            self._features[slot, root + 1 : root + 1 + len(path)] = self._features[slot, source]

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Append to a slot, ``start`` positions long, what another has from there to ``end``."""
        super().copy(source, slot, start, end)
        self._features[slot, start:end] = self._features[source, start:end]

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Forget a slot's positions for good; see :meth:`KVCache.wipe`."""
        super().erase(slot)
        self._features[slot].zero_()

    @torch.inference_mode()
    def _forward(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run one pass as any runner does, and put its hidden states where its keys and values are."""
        counts = [part.rows for part in parts]
        starts = [self.cache.lengths[part.slot] for part in parts]
        stay = [
            self._features[part.slot, start : start + rows]
            for part, start, rows in zip(parts, starts, counts, strict=True)
        ]
        if len(parts) == 1:
            self._left = stay[0]
            return super()._forward(parts, unread=unread)
        self._left = self._features.new_empty(sum(counts), *self._features.shape[2:])
        logits = super()._forward(parts, unread=unread)
        for place, own in zip(stay, torch.split(self._left, counts), strict=True):
            place.copy_(own)
        return logits

    def _compute(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        spans: Sequence[PassSpan],
        wanted: Sequence[int] | None,
    ) -> Tensor:
        """Run the rows of a pass, and leave their hidden states in ``_left``."""
        return self.decoder.forward(ids, positions, spans, wanted, HiddenStateTaps(self.layers, self._left))
