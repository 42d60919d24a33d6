"""Turn slots into preallocated rows of keys and values, where forgetting is setting a length."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from specclient.errors import ConfigurationError
from specclient_local.model.config import DecoderConfig

POSITION_BLOCK = 64
"""Attention reads whole blocks of this many positions, the ones not in use masked; see ``decoder``."""


class SlotRows(list[Tensor]):
    """A slot's rows, ``[2 KV, capacity, D]`` for each layer."""

    @cached_property
    def addresses(self) -> ctypes.Array[ctypes.c_void_p]:
        """Where each layer's begin, as the compiled passes are told."""
        return (ctypes.c_void_p * len(self))(*(rows.data_ptr() for rows in self))


class KVCache:
    """Keys and values of every layer and slot: ``[layers, slots, 2 KV, capacity, D]``, allocated once.

    The first KV heads of a row are keys, the others values.

    Attributes:
        lengths: positions in use, a slot each.
        moved: the first position whose row was computed in another place, a slot each; ``capacity`` if none.
        capacity: positions a slot can hold.

    Raises:
        ConfigurationError: they do not fit the memory.
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
        shape = (config.layers, slots, 2 * config.kv_heads, padded, config.head_dim)
        # Zeros, not empty memory: a masked position is multiplied by zero, and zero times NaN is NaN.
        self.rows = _zeros(shape, dtype, device, f"{slots} slots of {capacity} positions")
        self.lengths = [0] * slots
        self.moved = [capacity] * slots
        self._views = [
            SlotRows(self.rows[layer, slot] for layer in range(config.layers)) for slot in range(slots)
        ]

    def views(self, slot: int) -> SlotRows:
        """Return a slot's rows."""
        return self._views[slot]

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions from ``length`` on."""
        self.lengths[slot] = min(length, self.lengths[slot])
        if length <= self.moved[slot]:
            self.moved[slot] = self.capacity

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Give a slot the positions from ``start`` to ``end`` of another, and ``end`` as its length."""
        self.rows[:, slot, :, start:end] = self.rows[:, source, :, start:end]
        self.lengths[slot] = end

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Forget a slot's rows for good: one that is not finite would spoil a sum even where it is masked."""
        self.rows[:, slot].zero_()
        self.truncate(slot, 0)

    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """Keep of the positions from ``start`` on only those at the offsets ``kept``, moved together.

        A chain keeps a prefix, and then nothing moves.
        """
        if list(kept) != list(range(len(kept))):
            first = next(i for i, offset in enumerate(kept) if i != offset)
            self.moved[slot] = min(self.moved[slot], start + first)
            with torch.inference_mode():
                source = torch.tensor([start + offset for offset in kept], device=self.rows.device)
                rows = self.rows[:, slot]
                rows[:, :, start : start + len(kept)] = rows.index_select(2, source)
        self.lengths[slot] = start + len(kept)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None, named: str) -> Tensor:
    """Allocate the rows, unless they are more than there is memory.

    Asked beforehand, since a system may promise memory that it has not.
    """
    size, there = math.prod(shape) * dtype.itemsize, memory(device)
    try:
        if there is None or size <= there:
            return torch.zeros(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError):  # an allocation that failed
        pass
    raise cache_too_large_error(size, named, dtype, device)


def cache_too_large_error(
    size: int, named: str, dtype: torch.dtype, device: torch.device | None
) -> ConfigurationError:
    """Return (not raise) the error for caches of so many bytes."""
    there = memory(device)
    where = "this machine" if device is None or device.type == "cpu" else str(device)
    has = "more than is free" if there is None else f"{where} has {there / 2**30:.1f} GiB of memory"
    return ConfigurationError(
        f"keys and values of {named} take {size / 2**30:.1f} GiB in {str(dtype)[6:]}; {has}. "
        "Load with fewer slots, a smaller context or a half-precision dtype."
    )


def memory(device: torch.device | None) -> int | None:
    """Return a device's memory in bytes, where the system tells."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
