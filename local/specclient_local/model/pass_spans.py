"""Turn a request's part of a pass into what the model is told: where its rows go, see, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specclient_local.model.kv_cache import SlotRows


@dataclass(frozen=True, slots=True)
class PassSpan:
    """Neighbouring rows of a pass that are one request's.

    Attributes:
        rows: which.
        cache: its own, for each layer ``[2 KV, capacity, D]``.
        start: first free position there; its keys and values are written from it on.
        mask: ``[N, L]`` float, 0 or -inf, over the first L cache positions; L counts whole blocks.
        open: how many of the first positions all its rows see, by ``mask``.
        window_mask: the same as ``mask`` for layers with a sliding window; None where all see alike.
    """

    rows: slice
    cache: SlotRows
    start: int
    mask: Tensor
    open: int
    window_mask: Tensor | None = None

    @property
    def count(self) -> int:
        """How many rows it has."""
        count: int = self.rows.stop - self.rows.start
        return count

    def seen(self, sliding: bool) -> Tensor:
        """Return the mask of a layer."""
        return self.mask if self.window_mask is None or not sliding else self.window_mask


@dataclass(frozen=True, slots=True)
class HiddenStateTaps:
    """What of a pass is kept beside its logits: each row's hidden state at some depths.

    Attributes:
        layers: after how many of the model's layers; 0 is the embedding, all of them what the last norm gets.
        rows: ``[N, layers, hidden]`` in the model's type, on its device: the pass writes it.
    """

    layers: tuple[int, ...]
    rows: Tensor
