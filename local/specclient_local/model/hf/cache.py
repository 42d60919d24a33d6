"""KV caches for transformers models: allocated once per slot, truncated by setting a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specclient_local.model.kv_cache import POSITION_BLOCK


class HfLayerCache(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's keys and values of one slot, ``[1, KV, capacity, D]`` each.

    Args:
        capacity: maximum number of positions.
        whole: whether attention reads whole blocks, with unused positions masked, so that a row's sums do
            not depend on the number of rows after it; else only the used positions.

    Attributes:
        length: number of used positions.
    """

    is_sliding = False

    def __init__(self, capacity: int, *, whole: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0
        self._capacity = -(-capacity // POSITION_BLOCK) * POSITION_BLOCK
        self._whole = whole

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the cache for rows like these; zeros, because masked values are multiplied by zero."""

        def rows(like: Tensor) -> Tensor:
            return like.new_zeros(*like.shape[:-2], self._capacity, like.shape[-1])

        self.keys, self.values = rows(key_states), rows(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append rows; return the keys and values that attention reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[-2]
        self.keys[..., self.length : end, :] = key_states
        self.values[..., self.length : end, :] = value_states
        self.length = end
        shown = -(-end // POSITION_BLOCK) * POSITION_BLOCK if self._whole else end
        return self.keys[..., :shown, :], self.values[..., :shown, :]

    def get_seq_length(self) -> int:
        """Return the number of used positions."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of a mask, and its first position."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """Return the maximum number of positions."""
        return self._capacity

    @property
    def bytes(self) -> int:
        """Allocated memory in bytes; 0 before the first use."""
        return sum(t.nbytes for t in (self.keys, self.values) if t is not None)


class HfSlotCache:
    """One slot's cache of all layers.

    Args:
        layers: number of layers.
        capacity: maximum number of positions.
        whole: see :class:`HfLayerCache`.

    Attributes:
        cache: the object passed to the model.
        capacity: maximum number of positions, rounded up to whole blocks.
        moved: the first position whose row was computed at another position; None if there is none.
    """

    def __init__(self, layers: int, capacity: int, *, whole: bool) -> None:
        self.capacity = -(-capacity // POSITION_BLOCK) * POSITION_BLOCK
        self._rows = [HfLayerCache(capacity, whole=whole) for _ in range(layers)]
        self.cache = Cache(layers=list(self._rows))
        self.moved: int | None = None

    @property
    def length(self) -> int:
        """Number of used positions."""
        return self._rows[0].length

    @property
    def bytes(self) -> int:
        """Allocated memory in bytes; 0 before the slot's first use."""
        return sum(rows.bytes for rows in self._rows)

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on."""
        for rows in self._rows:
            rows.length = min(rows.length, length)
        if self.moved is not None and length <= self.moved:
            self.moved = None

    def assume_length(self, length: int) -> None:
        """Set the number of used positions without computing them; see :meth:`HfRunner.assume_length`."""
        for rows in self._rows:
            rows.length = length

    @torch.inference_mode()
    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Of the positions from ``start`` on, keep only those at the offsets ``kept``, moved together."""
        end = start + len(kept)
        first = next((i for i, offset in enumerate(kept) if i != offset), None)
        for rows in self._rows:
            for tensor in (rows.keys, rows.values):
                if first is not None and tensor is not None:
                    source = torch.tensor([start + offset for offset in kept], device=tensor.device)
                    tensor[..., start:end, :] = tensor.index_select(-2, source)
            rows.length = end
        if first is not None:
            self.moved = start + first if self.moved is None else min(self.moved, start + first)

    @torch.inference_mode()
    def copy(self, other: HfSlotCache, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot, and set the length to ``end``."""
        for mine, theirs in zip(self._rows, other._rows, strict=True):
            if theirs.keys is None or theirs.values is None:
                continue
            if mine.keys is None or mine.values is None:
                mine.lazy_initialization(theirs.keys, theirs.values)
            assert mine.keys is not None
            assert mine.values is not None
            mine.keys[..., start:end, :] = theirs.keys[..., start:end, :]
            mine.values[..., start:end, :] = theirs.values[..., start:end, :]
        for mine in self._rows:
            mine.length = end

    @torch.inference_mode()
    def erase(self) -> None:
        """Overwrite all rows with zeros, and set the length to 0."""
        for rows in self._rows:
            rows.reset()
            rows.length = 0
        self.moved = None
