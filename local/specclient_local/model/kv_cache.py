"""KV caches: preallocated keys and values per layer and slot. Setting a smaller length drops positions."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from specclient.errors import ConfigurationError
from specclient_local.model.config import DecoderConfig
from specclient_local.model.system_memory import release_pages, untouched_zeros

POSITION_BLOCK = 64
"""Attention reads whole blocks of this many positions; positions that are not in use are masked."""


class SlotRows(list[Tensor]):
    """A slot's keys and values, ``[2 KV, capacity, D]`` per layer."""

    @cached_property
    def addresses(self) -> ctypes.Array[ctypes.c_void_p]:
        """Address of each layer's rows, for compiled passes."""
        return (ctypes.c_void_p * len(self))(*(rows.data_ptr() for rows in self))


class LayerPages(Protocol):
    """A slot's keys and values of one layer, in pages."""

    def write(self, start: int, rows: Tensor) -> None:
        """Write keys and values ``[2 KV, N, D]`` from a position on."""
        ...

    def read(self, length: int) -> Tensor:
        """Return those of the first positions, ``[2 KV, length, D]``; ``length`` is in whole blocks."""
        ...


PagedRows = Sequence[LayerPages]
"""A slot's keys and values by layer, in pages."""


class KVCache:
    """Keys and values of all layers and slots, ``[layers, slots, 2 KV, capacity, D]``, allocated once.

    The first KV heads of a row are keys, the others values. On a CPU, positions take memory once they have
    been in use.

    Attributes:
        lengths: per slot, number of positions in use.
        moved: per slot, first position whose row was computed at another position; ``capacity`` if none.
        capacity: number of positions that a slot can hold.

    Raises:
        ConfigurationError: the caches do not fit into memory.
    """

    def __init__(
        self,
        config: DecoderConfig,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        self.capacity = capacity
        padded = -(-capacity // POSITION_BLOCK) * POSITION_BLOCK
        shape = (config.kv_layers, slots, 2 * config.kv_heads, padded, config.head_dim)
        # Zeros, not empty memory: a masked position is multiplied by zero, and zero times NaN is NaN.
        self.rows = zeroed_rows(shape, dtype, device, f"{slots} slots of {capacity} positions")
        self.lengths = [0] * slots
        self.moved = [capacity] * slots
        recurrent = (False,) * config.layers if config.delta is None else config.delta.recurrent
        self._views = [_slot_rows(self.rows[:, slot], recurrent) for slot in range(slots)]

    @property
    def positions(self) -> int:
        """Number of positions of a slot that attention can read: the capacity in whole blocks."""
        positions: int = self.rows.shape[3]
        return positions

    @property
    def block_table(self) -> Tensor | None:
        """The pages of each slot, int32 ``[slots, pages]``; None where a slot's positions are neighbours."""
        return None

    def views(self, slot: int) -> SlotRows | PagedRows:
        """Return a slot's rows by layer."""
        return self._views[slot]

    def reserve(self, slot: int, end: int) -> int:  # noqa: ARG002 - for caches of pages
        """Take memory for positions before ``end``; return how many positions the slot can hold by now."""
        return end

    def prepare(self, ends: Iterable[tuple[int, int]]) -> None:
        """Make a pass possible that writes positions before an end in each slot; pairs of slot and end."""

    def borrowed(self) -> AbstractContextManager[None]:
        """Return a context in which passes of free slots can be timed at any length."""
        return nullcontext()

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions from ``length`` on."""
        self.lengths[slot] = min(length, self.lengths[slot])
        if length <= self.moved[slot]:
            self.moved[slot] = self.capacity

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot, and set the length to ``end``."""
        self.rows[:, slot, :, start:end] = self.rows[:, source, :, start:end]
        self.lengths[slot] = end

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Zero a slot's rows: a value that is not finite would spoil sums even at a masked position."""
        self.rows[:, slot].zero_()
        self.truncate(slot, 0)

    @torch.inference_mode()
    def write_zeros(self, slots: int, length: int) -> None:
        """Zero the first positions of the first slots.

        Until a page is written, all reads of it come from the processor's caches, so that a pass takes less
        time than it will.
        """
        self.rows[:, :slots, :, :length].zero_()

    @torch.inference_mode()
    def release(self) -> None:
        """Zero all slots, which must be empty, and return their memory to the system."""
        if self.rows.device.type == "cpu":
            release_pages(self.rows)

    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """Keep only the positions at offsets ``kept`` from ``start`` on, moved together.

        For an accepted chain the offsets are a prefix, and nothing moves.
        """
        if list(kept) != list(range(len(kept))):
            first = next(i for i, offset in enumerate(kept) if i != offset)
            self.moved[slot] = min(self.moved[slot], start + first)
            with torch.inference_mode():
                source = torch.tensor([start + offset for offset in kept], device=self.rows.device)
                rows = self.rows[:, slot]
                rows[:, :, start : start + len(kept)] = rows.index_select(2, source)
        self.lengths[slot] = start + len(kept)


def _slot_rows(rows: Tensor, recurrent: Sequence[bool]) -> SlotRows:
    """Return a slot's rows by layer, given those of the layers that are not recurrent, ``[layers, …]``."""
    own = iter(rows)
    return SlotRows(rows.new_empty(0) if each else next(own) for each in recurrent)


def zeroed_rows(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None, description: str
) -> Tensor:
    """Allocate the rows, after checking that they fit into memory.

    The check comes first because a system may promise memory that it does not have.
    """
    size, available = math.prod(shape) * dtype.itemsize, memory(device)
    try:
        if available is None or size <= available:
            if device is None or device.type == "cpu":
                return untouched_zeros(size).view(dtype).view(shape)
            return torch.zeros(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError):  # an allocation that failed
        pass
    raise cache_too_large_error(size, description, dtype, device)


def cache_too_large_error(
    size: int, description: str, dtype: torch.dtype, device: torch.device | None
) -> ConfigurationError:
    """Return (not raise) the error for caches of ``size`` bytes."""
    available = memory(device)
    where = "this machine" if device is None or device.type == "cpu" else str(device)
    has = "more than is free" if available is None else f"{where} has {available / 2**30:.1f} GiB of memory"
    return ConfigurationError(
        f"keys and values of {description} take {size / 2**30:.1f} GiB in {str(dtype)[6:]}; {has}. "
        "Load with fewer slots, a smaller context or a half-precision dtype."
    )


def memory(device: torch.device | None) -> int | None:
    """Return a device's total memory in bytes; None if the system does not report it."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
