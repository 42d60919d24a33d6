"""Turn slots into caches that transformers' models write: allocated once, forgotten by setting a length."""

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
        capacity: positions it can hold.
        whole: whether attention reads whole blocks, the rest masked, so that a row's sums do not depend on
            how many rows came after it; else just the positions in use.
    """

    is_sliding = False

    def __init__(self, capacity: int, *, whole: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0
        self._capacity = -(-capacity // POSITION_BLOCK) * POSITION_BLOCK
        self._whole = whole

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate rows like these; zeros, since what is masked is multiplied by zero."""

        def rows(like: Tensor) -> Tensor:
            return like.new_zeros(*like.shape[:-2], self._capacity, like.shape[-1])

        self.keys, self.values = rows(key_states), rows(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append rows; return what attention reads."""
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
        """Return the positions in use."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many positions a mask is over, and the first of them."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """Return the positions it can hold."""
        return self._capacity

    @property
    def bytes(self) -> int:
        """Memory of the rows."""
        return sum(t.nbytes for t in (self.keys, self.values) if t is not None)


class HfSlotCache:
    """One slot's cache of every layer.

    Attributes:
        cache: as the model takes it.
        capacity: positions it can hold.
        moved: the first position whose row was computed in another place; None if there is none.
    """

    def __init__(self, layers: int, capacity: int, *, whole: bool) -> None:
        self.capacity = -(-capacity // POSITION_BLOCK) * POSITION_BLOCK
        self._rows = [HfLayerCache(capacity, whole=whole) for _ in range(layers)]
        self.cache = Cache(layers=list(self._rows))
        self.moved: int | None = None

    @property
    def length(self) -> int:
        """Positions in use."""
        return self._rows[0].length

    @property
    def bytes(self) -> int:
        """Memory of the rows, of a slot that has been used."""
        return sum(rows.bytes for rows in self._rows)

    def truncate(self, length: int) -> None:
        """Forget all positions from ``length`` on."""
        for rows in self._rows:
            rows.length = min(rows.length, length)
        if self.moved is not None and length <= self.moved:
            self.moved = None

    def assume_length(self, length: int) -> None:
        """Take the first positions for used ones; see :meth:`HfRunner.pretend`."""
        for rows in self._rows:
            rows.length = length

    @torch.inference_mode()
    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Keep of the positions from ``start`` on only those at the offsets ``kept``, moved together."""
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
        """Take over positions of another slot, to be ``end`` positions long."""
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
        """Forget all rows for good."""
        for rows in self._rows:
            rows.reset()
            rows.length = 0
        self.moved = None
