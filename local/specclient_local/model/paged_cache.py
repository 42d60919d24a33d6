"""KV caches in pages of 64 positions that slots take as their answers grow, by a table on the device.

A slot's positions are anywhere in memory; the table has its pages in order. A recorded round reads the table
at a fixed address; the host changes the table's contents between rounds. Pages that a round can need at most
are taken before it begins, and those that it did not need are given back after it, so that nothing is
allocated within a round.

Memory for pages is that of all slots together (PagedAttention, arXiv 2309.06180): a slot takes no more than
its own positions need, and equal prefixes of prompts are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from specclient_local.model.config import DecoderConfig
from specclient_local.model.kv_cache import POSITION_BLOCK, KVCache, zeroed_rows
from specclient_local.model.page_pool import PagePool

PAGE = POSITION_BLOCK
"""Positions of a page: as many keys as attention reads in one step."""


def page_count(positions: int) -> int:
    """Return the number of pages that hold so many positions."""
    return -(-positions // PAGE)


class PagedKVCache(KVCache):
    """Keys and values of all layers in pages, ``[layers, slots + pages, 2 KV, PAGE, D]``, allocated once.

    Page s belongs to slot s alone. Positions for which a slot has taken no page are written there, such as
    those of rows that pad a pass, and are never read.

    Args:
        config: the model's configuration.
        slots: number of slots.
        capacity: number of positions that a slot can hold.
        dtype, device: of keys and values.
        pages: number of pages; at least those of one full slot.

    Attributes:
        pool: which slots hold which pages.
        table: int32 ``[slots, pages of a slot]`` on the device.
        companions: further tensors whose first two dimensions are pages and positions of a page.

    Raises:
        ConfigurationError: the pages do not fit into memory.
    """

    def __init__(
        self,
        config: DecoderConfig,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
        *,
        pages: int,
    ) -> None:
        self.capacity = capacity
        self._width = page_count(capacity)
        shape = (config.kv_layers, slots + pages, 2 * config.kv_heads, PAGE, config.head_dim)
        self.rows = zeroed_rows(shape, dtype, device, f"{pages} pages of {PAGE} positions")
        self.companions: list[Tensor] = []
        self.lengths = [0] * slots
        self.moved = [capacity] * slots
        self.pool = PagePool(pages, slots, first=slots)
        self._host = np.arange(slots, dtype=np.int32)[:, None].repeat(self._width, axis=1)
        self.table = torch.tensor(self._host, device=self.rows.device)
        self._changed = self._borrowed = False
        self._layers = [
            [_LayerOfSlot(layer, self, slot) for layer in self.rows.unbind()] for slot in range(slots)
        ]

    @property
    def positions(self) -> int:
        """See :class:`KVCache`."""
        return self._width * PAGE

    @property
    def block_table(self) -> Tensor:
        """See :class:`KVCache`."""
        return self.table

    def views(self, slot: int) -> Sequence[_LayerOfSlot]:
        """Return a slot's rows by layer."""
        return self._layers[slot]

    def reserve(self, slot: int, end: int) -> int:
        """Take pages for positions before ``end``, as far as other requests can still end.

        Returns:
            How many positions the slot can hold by now, at most ``end``.
        """
        held = len(self.pool.pages_of(slot))
        for missing in range(page_count(end) - held, 0, -1):
            if self.pool.safe(slot, missing):
                self.take(slot, missing)
                break
        return min(end, PAGE * len(self.pool.pages_of(slot)))

    @torch.inference_mode()
    def prepare(self, ends: Iterable[tuple[int, int]]) -> None:
        """Take the pages of a pass that were not reserved, and copy a changed table to the device.

        Raises:
            EngineError: the slots hold all pages.
        """
        for slot, end in () if self._borrowed else ends:
            missing = page_count(min(end, self.capacity)) - len(self.pool.pages_of(slot))
            if missing > 0:
                self.take(slot, missing)
        if self._changed:
            self.table.copy_(torch.from_numpy(self._host), non_blocking=True)
            self._changed = False

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Let all slots use all pages in turn, to time passes at lengths for which there are too few pages.

        What is written is overwritten by other slots, so no request may run.

        Raises:
            RuntimeError: slots hold pages, or prefixes are stored.
        """
        pool = self.pool
        if pool.free < pool.pages:
            raise RuntimeError(f"{pool.pages - pool.free} of {pool.pages} pages are in use")
        slots = len(self._host)
        turns = np.arange(self._host.size, dtype=np.int32) % pool.pages + slots
        self._host[:] = turns.reshape(self._host.shape)
        self._changed = self._borrowed = True
        try:
            yield
        finally:
            self._host[:] = np.arange(slots, dtype=np.int32)[:, None]
            self._changed, self._borrowed = True, False

    @torch.inference_mode()
    def take(self, slot: int, count: int) -> None:
        """Take pages at the end of a slot's; see :meth:`PagePool.take`."""
        for page in self.pool.take(slot, count):
            if page in self.pool.soiled:
                self._wipe(page)
        self.refresh(slot)

    def refresh(self, slot: int) -> None:
        """Write a slot's pages to the host's table."""
        pages = self.pool.pages_of(slot)
        self._host[slot] = slot
        self._host[slot, : len(pages)] = pages
        self._changed = True

    def locate(self, slot: int, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the page of each position of a slot, and its place there, on the device."""
        own, device = self._host[slot].tolist(), self.rows.device
        pages = torch.tensor([own[position // PAGE] for position in positions], device=device)
        return pages, torch.tensor([position % PAGE for position in positions], device=device)

    def pages_before(self, slot: int, length: int) -> Tensor:
        """Return the pages of a slot's first positions, on the device."""
        pages = self._host[slot, : page_count(length)]
        return torch.tensor(pages, dtype=torch.long, device=self.rows.device)

    def truncate(self, slot: int, length: int) -> None:
        """Forget all positions from ``length`` on; give their pages back, but for the next position's."""
        super().truncate(slot, length)
        kept = self.lengths[slot] // PAGE + 1 if length else 0
        if len(self.pool.pages_of(slot)) > kept:
            self.pool.give_back(slot, kept)
            self.refresh(slot)

    @torch.inference_mode()
    def copy(self, source: int, slot: int, start: int, end: int) -> None:
        """Copy positions ``start`` to ``end`` of another slot, and set the length to ``end``."""
        self.prepare([(slot, end)])
        taken, written = (self.locate(each, range(start, end)) for each in (source, slot))
        self.rows[:, written[0], :, written[1]] = self.rows[:, taken[0], :, taken[1]]
        for companion in self.companions:
            companion[written] = companion[taken]
        self.lengths[slot] = end

    @torch.inference_mode()
    def copy_page(self, source: int, page: int) -> None:
        """Copy a page, so that a slot can write behind the positions that it shares."""
        self.rows[:, page] = self.rows[:, source]
        for companion in self.companions:
            companion[page] = companion[source]

    @torch.inference_mode()
    def erase(self, slot: int) -> None:
        """Zero a slot's own page now, and the pages that it held before they are taken again."""
        self.pool.soiled.update(self.pool.pages_of(slot))
        self._wipe(slot)
        self.truncate(slot, 0)

    @torch.inference_mode()
    def write_zeros(self, slots: int, length: int) -> None:
        """Do nothing: pages are zero, or were in use."""

    @torch.inference_mode()
    def release(self) -> None:
        """Do nothing: pages that were in use keep their memory."""

    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """Keep only the positions at offsets ``kept`` from ``start`` on, moved together; give pages back."""
        if list(kept) != list(range(len(kept))):
            first = next(i for i, offset in enumerate(kept) if i != offset)
            self.moved[slot] = min(self.moved[slot], start + first)
            with torch.inference_mode():
                pages, places = self.locate(slot, [start + offset for offset in kept])
                rows = self.rows[:, pages, :, places]
                pages, places = self.locate(slot, range(start, start + len(kept)))
                self.rows[:, pages, :, places] = rows
        self.lengths[slot] = start + len(kept)
        self.truncate(slot, start + len(kept))

    def _wipe(self, page: int) -> None:
        self.pool.soiled.discard(page)
        self.rows[:, page].zero_()
        for companion in self.companions:
            companion[page].zero_()


class _LayerOfSlot:
    """A slot's keys and values of one layer, for passes that run request by request.

    Args:
        rows: ``[slots + pages, 2 KV, PAGE, D]`` the layer's pages.
        cache: the cache.
        slot: the slot.
    """

    def __init__(self, rows: Tensor, cache: PagedKVCache, slot: int) -> None:
        self._rows, self._cache, self._slot = rows, cache, slot

    def write(self, start: int, rows: Tensor) -> None:
        """Write keys and values ``[2 KV, N, D]`` from a position on."""
        pages, places = self._cache.locate(self._slot, range(start, start + rows.shape[1]))
        self._rows[pages, :, places] = rows.transpose(0, 1)

    def read(self, length: int) -> Tensor:
        """Return a copy of those of the first positions, ``[2 KV, length, D]``."""
        pages = self._rows[self._cache.pages_before(self._slot, length)]
        return pages.transpose(0, 1).flatten(1, 2)[:, :length]
