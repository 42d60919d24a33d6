"""Layout of a dense pass: which cache positions each row writes and attends to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WORD_BITS = 64
"""Width of a row's attention bit mask."""

_NOWHERE = 1 << 40
"""A cache position beyond any capacity: it is clamped to the last position, which is a spare one."""


@dataclass(frozen=True, slots=True)
class DensePassLayout:
    """Slots, positions and visible cache positions of a pass, as device tensors: S slots, R rows each.

    A row attends to all cache positions before its slot's origin, and to position origin + b if bit b of its
    word is set. This describes chains and trees of up to 64 rows without a mask over the context. Without
    words, a row attends to all positions up to its own, as in a prompt.

    Attributes:
        slots: ``[S]`` slot of each batch row's cache.
        places: ``[S, R]`` cache position that a row's keys and values are written to.
        positions: ``[S, R]`` RoPE position of a row.
        origins: ``[S]`` first cache position that the words describe.
        words: ``[S, R]`` visible positions from the origin on, one bit each; every row sees one at least.
            None for rows of a prompt.
        ends: ``[S]`` end of the visible positions of all rows; kernels read no key beyond it.
        length: L, the number of positions that passes without such kernels attend over.
        first: whether ``slots`` are the first S slots. Their caches are then read in place; otherwise they
            are gathered first, which costs another read and write. Kernels read all caches in place.
    """

    slots: Tensor
    places: Tensor
    positions: Tensor
    origins: Tensor
    words: Tensor | None
    ends: Tensor
    length: int
    first: bool

    @classmethod
    def chain(
        cls, slots: Tensor, starts: Tensor, rows: int, length: int, *, context: int, first: bool
    ) -> DensePassLayout:
        """Return the layout of ``rows`` consecutive rows per slot that start at position ``starts`` ``[S]``.

        A row with a negative position writes its keys and values to a position that is never read. Slots that
        start at or beyond ``context`` are padding: they write beyond the context, and attend to one position.
        """
        positions = starts[:, None] + torch.arange(rows, device=starts.device)
        idle = starts >= context
        origins = torch.where(idle, 0, starts.clamp(min=0))
        last = torch.where(idle[:, None], 0, positions.clamp(min=0) - origins[:, None])
        words = torch.bitwise_left_shift(torch.full_like(last, 2), last) - 1
        ends = torch.where(idle, 1, (starts + rows).clamp(min=1))
        places = torch.where(positions < 0, _NOWHERE, positions)
        return cls(slots, places, positions, origins, words, ends, length, first)

    @classmethod
    def prompt(cls, slots: Tensor, starts: Tensor, rows: int, length: int) -> DensePassLayout:
        """Return the layout of ``rows`` rows of a prompt per slot, from position ``starts`` ``[S]`` on."""
        positions = starts[:, None] + torch.arange(rows, device=starts.device)
        return cls(slots, positions, positions, starts, None, starts + rows, length, first=False)

    def split(self, count: int) -> list[DensePassLayout]:
        """Return ``count`` layouts of the same number of slots, which this one holds in order."""
        assert self.words is not None
        tensors = (self.slots, self.places, self.positions, self.origins, self.words, self.ends)
        parts = zip(*(tensor.chunk(count) for tensor in tensors), strict=True)
        return [
            DensePassLayout(slots, places, positions, origins, words, ends, self.length, self.first)
            for slots, places, positions, origins, words, ends in parts
        ]

    def seen(self, window: int | None = None) -> Tensor:
        """Return the bool mask ``[S, R, L]`` of the positions that each row attends to.

        Args:
            window: width of the sliding window. Cache position and RoPE position are equal for rows of
                earlier passes. They differ for tree rows of the current pass, but such rows are never
                farther apart than the pass is long, and the window is longer.
        """
        columns = torch.arange(self.length, device=self.slots.device)
        if self.words is None:
            seen = columns <= self.positions[..., None]
        else:
            offsets = columns - self.origins[:, None]
            bits = (self.words[..., None] >> offsets.clamp(0, WORD_BITS - 1)[:, None]) & 1
            seen = ((offsets < 0)[:, None] | (bits == 1)) & (offsets < WORD_BITS)[:, None]
        return seen if window is None else seen & (columns > self.positions[..., None] - window)
