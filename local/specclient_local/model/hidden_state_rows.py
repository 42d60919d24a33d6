"""Storage of hidden states by slot and position, next to the keys and values of the same positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specclient_local.model.kv_cache import KVCache
from specclient_local.model.paged_cache import PAGE, PagedKVCache


class HiddenStateRows(Protocol):
    """Hidden states ``[T, hidden]`` of every position of a cache.

    Attributes:
        rows: all of them; the first two dimensions are those of the cache: slots and positions, or pages and
            positions of a page.
    """

    rows: Tensor

    def read(self, slot: int, start: int, end: int) -> Tensor:
        """Return those of a slot's positions ``start`` to ``end``."""
        ...

    def write(self, slot: int, start: int, states: Tensor) -> None:
        """Write those of a slot's positions from ``start`` on."""
        ...

    def output(self, slot: int, start: int, end: int) -> Tensor:
        """Return memory into which a pass may write states; :meth:`write` then stores them."""
        ...

    def move(self, slot: int, sources: Sequence[int], start: int) -> None:
        """Copy those of some positions of a slot to its positions from ``start`` on."""
        ...

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy those of positions ``start`` to ``end`` of another slot."""
        ...

    def erase(self, slot: int) -> None:
        """Zero those of a slot."""
        ...


class SlotHiddenStates:
    """Hidden states ``[slots, positions, T, hidden]``."""

    def __init__(
        self, slots: int, positions: int, width: tuple[int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.rows = torch.zeros((slots, positions, *width), dtype=dtype, device=device)

    def read(self, slot: int, start: int, end: int) -> Tensor:
        """See :class:`HiddenStateRows`."""
        return self.rows[slot, start:end]

    def write(self, slot: int, start: int, states: Tensor) -> None:
        """See :class:`HiddenStateRows`."""
        place = self.rows[slot, start : start + len(states)]
        if place.data_ptr() != states.data_ptr():
            place.copy_(states)

    def output(self, slot: int, start: int, end: int) -> Tensor:
        """See :class:`HiddenStateRows`."""
        return self.rows[slot, start:end]

    def move(self, slot: int, sources: Sequence[int], start: int) -> None:
        """See :class:`HiddenStateRows`."""
        source = torch.tensor(sources, device=self.rows.device)
        self.rows[slot, start : start + len(sources)] = self.rows[slot, source]

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """See :class:`HiddenStateRows`."""
        self.rows[slot, start:end] = self.rows[source, start:end]

    def erase(self, slot: int) -> None:
        """See :class:`HiddenStateRows`."""
        self.rows[slot].zero_()


class PagedStates:
    """Hidden states ``[pages, positions of a page, T, hidden]`` in the pages of a cache.

    The cache copies and erases pages of these states together with its own.
    """

    def __init__(
        self, cache: PagedKVCache, width: tuple[int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._cache = cache
        self.rows = torch.zeros((cache.rows.shape[1], PAGE, *width), dtype=dtype, device=device)
        cache.companions.append(self.rows)

    def read(self, slot: int, start: int, end: int) -> Tensor:
        """See :class:`HiddenStateRows`."""
        return self.rows[self._cache.locate(slot, range(start, end))]

    def write(self, slot: int, start: int, states: Tensor) -> None:
        """See :class:`HiddenStateRows`."""
        self.rows[self._cache.locate(slot, range(start, start + len(states)))] = states

    def output(self, slot: int, start: int, end: int) -> Tensor:  # noqa: ARG002 - a copy has no place
        """See :class:`HiddenStateRows`."""
        return self.rows.new_empty((end - start, *self.rows.shape[2:]))

    def move(self, slot: int, sources: Sequence[int], start: int) -> None:
        """See :class:`HiddenStateRows`."""
        moved = self.rows[self._cache.locate(slot, sources)]
        self.write(slot, start, moved)

    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Do nothing: the cache has copied them."""

    def erase(self, slot: int) -> None:
        """Do nothing: the cache erases them."""


def hidden_state_rows(
    cache: KVCache, slots: int, positions: int, width: tuple[int, int], dtype: torch.dtype
) -> HiddenStateRows:
    """Return zeroed storage beside a cache.

    Args:
        cache: the cache.
        slots: number of slots.
        positions: number of positions of a slot.
        width: number of hidden states of a position, and their size.
        dtype: their data type.
    """
    if isinstance(cache, PagedKVCache):
        return PagedStates(cache, width, dtype, cache.rows.device)
    return SlotHiddenStates(slots, positions, width, dtype, cache.rows.device)
