"""Spans of rows in a forward pass: each request's cache, mask, and hidden states to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.kv_cache import PagedRows, SlotRows
from specclient_local.model.pass_input import SlotInput
from specclient_local.model.recurrent_states import SlotStates


@dataclass(frozen=True, slots=True)
class PassSpan:
    """Neighbouring rows of a pass that belong to one request.

    Attributes:
        rows: their indices in the pass.
        cache: the request's cache by layer, ``[2 KV, capacity, D]`` each, or in pages.
        start: first free cache position, from which keys and values are written.
        mask: ``[N, L]`` additive, 0 or -inf, over the first L cache positions; L is a multiple of
            ``POSITION_BLOCK``.
        open: number of leading positions that all rows see.
        causal: whether row ``i`` sees the first ``start + i + 1`` positions and no others, as in a chain.
        window_mask: as ``mask``, for layers with a sliding window; None if all layers have the same mask.
        adapter: number of the adapter that changes the request's rows; None for none.
        states: the states of the request's recurrent layers; None if the model has none.
    """

    rows: slice
    cache: SlotRows | PagedRows
    start: int
    mask: Tensor
    open: int
    causal: bool
    window_mask: Tensor | None = None
    adapter: int | None = None
    states: SlotStates | None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        count: int = self.rows.stop - self.rows.start
        return count

    def seen(self, sliding: bool) -> Tensor:
        """Return the mask ``[N, L]`` for a layer."""
        return self.mask if self.window_mask is None or not sliding else self.window_mask


@dataclass(frozen=True, slots=True)
class HiddenStateTaps:
    """Hidden states to keep of a pass.

    Attributes:
        layers: numbers of layers after which to keep them; 0 keeps the embedding, and the number of all
            layers keeps the input of the last norm.
        rows: ``[N, len(layers), hidden]`` output, in the model's dtype and on its device.
    """

    layers: tuple[int, ...]
    rows: Tensor


def wanted_rows(parts: Sequence[SlotInput], spans: Sequence[PassSpan], unread: bool) -> list[int]:
    """Return the indices of the rows whose logits are wanted; none if ``unread``."""
    if unread:
        return []
    where = zip(parts, spans, strict=True)
    return [row for part, span in where for row in range(span.rows.start + part.unread, span.rows.stop)]


def within_window(mask: Tensor, own: Sequence[int], root: int, below: Sequence[int], window: int) -> Tensor:
    """Return a mask ``[N, L]`` in which positions a window or more before each row are closed.

    Args:
        mask: ``[N, L]``.
        own: ``[N]`` positions of the rows.
        root: cache position of the tree's root; before it, positions and cache positions are equal.
        below: positions of the root and the nodes, which differ from their cache positions in a tree.
        window: width of the window.
    """
    columns = torch.arange(mask.shape[1], device=mask.device)
    columns[root : root + len(below)] = torch.tensor(below, device=mask.device)
    rows = torch.tensor(own, device=mask.device)
    return mask.masked_fill(columns[None, :] <= rows[:, None] - window, -torch.inf)
