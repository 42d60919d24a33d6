"""Model runner whose small passes have one of a few static shapes, recorded as CUDA graphs and replayed.

The numbers of slots, of rows per slot and of attended positions are padded to the next of a few sizes. Each
such bucket has its own input buffer and is recorded when it first occurs (``graph_recorder``). A replay is
one launch instead of about a thousand. On a CPU the same function runs on the same buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.dense_decoder import DenseDecoder, DensePassLayout
from specclient_local.model.cuda_graphs.graph_recorder import GraphRecorder, RecordedRun, out_of_memory
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.weights import DecoderWeights

SLOTS = (1, 4, 16, 64)
ROWS = (1, 2, 4, 8, 16)

PADDING_POSITIONS = ROWS[-1]
"""Additional cache positions per slot for the keys and values of padding rows; they are never read."""

_SHORTEST = 128
"""Minimum number of positions attended."""

_BITS = 64
"""Width of a row's attention bit mask, which starts at the pass's first row or at its tree's root."""

_HEAD = 3
_FIELDS = 3


class PassBucket(NamedTuple):
    """The shape of a pass; ``length`` and ``first`` as in
    :class:`~specclient_local.model.cuda_graphs.dense_decoder.DensePassLayout`."""

    slots: int
    rows: int
    length: int
    first: bool


@dataclass(frozen=True, slots=True)
class BatchSeats:
    """Assignment of slots to the rows of a batch.

    Attributes:
        slots: the slot of each batch row, including padding rows.
        rows: batch row by slot, for the slots in the pass.
        first: whether batch row i is slot i for all rows.
    """

    slots: list[int]
    rows: dict[int, int]
    first: bool


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """A bucket's input buffer, and the recorded function that computes the logits from it."""

    inputs: Tensor
    run: RecordedRun


class StaticRunner(DecoderRunner):
    """A :class:`DecoderRunner` whose small passes have static shapes.

    Larger passes (a prefill) run as in the base class. Both use the same weights and cache, so they can be
    mixed.

    Args:
        decoder: the model.
        weights: its weights.
        slots: maximum number of concurrent sequences.
        context: maximum positions per slot.
        records: see :class:`~specclient_local.model.cuda_graphs.graph_recorder.GraphRecorder`.

    Attributes:
        dense: the model with static shapes.
        recorder: records its passes.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        weights: DecoderWeights,
        slots: int,
        context: int,
        *,
        records: bool = True,
    ) -> None:
        super().__init__(decoder, slots, context, PADDING_POSITIONS)
        self.recorder = GraphRecorder(self.device, records=records)
        self.dense = DenseDecoder(decoder.config, weights, context, compiled=self.recorder.compiles)
        most = min(slots, SLOTS[-1])
        self._sizes = (*(size for size in SLOTS if size < most), most)
        self.shared = most * ROWS[-1]
        shape = self.shared, decoder.config.vocab_size
        try:
            self._logits = torch.empty(shape, dtype=decoder.dtype, device=self.device)
        except torch.OutOfMemoryError as error:
            raise out_of_memory(f"the logits of {shape[0]} rows", self.device) from error
        self._buckets: dict[PassBucket, RecordedPass] = {}

    @property
    def prefix_granularity(self) -> int:
        """``MAX_PASS_ROWS``, because the last bits of a row's results depend on the shape of its pass."""
        return MAX_PASS_ROWS

    @property
    def most_slots(self) -> int:
        """Maximum number of slots per pass."""
        return self._sizes[-1]

    def draft_chain(self, slot: int, tokens: Sequence[int], steps: int, vocab: int) -> list[int] | None:  # noqa: ARG002
        """Return None: chains are not supported, because passes are recorded one by one."""
        return None

    def seats(self, slots: Sequence[int]) -> BatchSeats:
        """Assign slots to rows of the smallest sufficient batch; slot i to row i if all slots fit so."""
        size = _least(len(slots), self._sizes)
        if max(slots) < size:
            return BatchSeats([*range(size)], {slot: slot for slot in slots}, first=True)
        padded = [*slots, *[slots[0]] * (size - len(slots))]
        return BatchSeats(padded, {slot: row for row, slot in enumerate(slots)}, first=False)

    def attended(self, length: int) -> int:
        """Return the padded number of attended positions for ``length`` used ones: a power of two."""
        capacity = self.cache.rows.shape[3]
        return min(capacity, max(_SHORTEST, 1 << (length - 1).bit_length()))

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run a pass in the smallest bucket that fits, or as in the base class if none fits."""
        if unread or len(parts) > self.most_slots or any(not _fits(part) for part in parts):
            return super().run_pass(parts, unread=unread)
        ends = [self.cache.lengths[part.slot] + part.rows for part in parts]
        if max(ends) > self.context:
            raise ValueError(f"{max(ends)} positions exceed the {self.context} a slot can hold")
        seats = self.seats([part.slot for part in parts])
        rows = _least(max(part.rows for part in parts), ROWS)
        bucket = PassBucket(len(seats.slots), rows, self.attended(max(ends)), seats.first)
        taken = {seats.rows[part.slot]: part for part in parts}
        values = [
            self._fields(taken[row], rows) if row in taken else _idle(slot, self.context, rows)
            for row, slot in enumerate(seats.slots)
        ]
        logits = self._replay(bucket, torch.tensor(values))
        for part, end in zip(parts, ends, strict=True):
            self.cache.lengths[part.slot] = end
        # Copied, because the next pass of any bucket overwrites the shared buffer.
        return [logits[seats.rows[part.slot], part.unread : part.rows].clone() for part in parts]

    def _replay(self, bucket: PassBucket, values: Tensor) -> Tensor:
        """Run a bucket and return its logits ``[S, R, V]``; the next pass overwrites them."""
        held = self._buckets.get(bucket)
        if held is None:
            inputs = values.to(self.device)
            named = f"a pass of {bucket.rows} rows in {bucket.slots} slots over {bucket.length} positions"
            run = self.recorder.record(lambda: self._pass(bucket, inputs), named)
            held = self._buckets[bucket] = RecordedPass(inputs, run)
        held.inputs.copy_(values, non_blocking=True)
        held.run()
        return self._logits[: bucket.slots * bucket.rows].view(bucket.slots, bucket.rows, -1)

    def _pass(self, bucket: PassBucket, inputs: Tensor) -> None:
        """Compute the logits of inputs in the format of :meth:`_fields`."""
        slots, starts, origins = inputs[:, :_HEAD].unbind(1)
        ids, positions, words = inputs[:, _HEAD:].view(bucket.slots, _FIELDS, -1).unbind(1)
        places = starts[:, None] + torch.arange(bucket.rows, device=self.device)
        offsets = torch.arange(bucket.length, device=self.device) - origins[:, None]
        bits = (words[..., None] >> offsets.clamp(0, _BITS - 1)[:, None]) & 1
        seen = ((offsets < 0)[:, None] | (bits == 1)) & (offsets < _BITS)[:, None]
        block = DensePassLayout(slots.contiguous(), places, positions, seen, bucket.first)
        logits = self.dense.logits(self.dense.hidden(ids, block, self.cache.rows))
        self._logits[: bucket.slots * bucket.rows].copy_(logits.flatten(0, 1))

    def _fields(self, part: SlotInput, rows: int) -> list[int]:
        """Return a slot's inputs: slot, first cache position, origin; then id, position and mask per row.

        Bit b of a row's mask is set if the row attends to cache position origin + b. All positions before
        the origin are attended to.
        """
        start = self.cache.lengths[part.slot]
        root = start + part.rows - len(part.tree) - 1
        origin = min(start, root)
        chain = range(start, start + part.rows)
        positions = [*chain]
        words = [(2 << place - origin) - 1 for place in chain]
        if not part.tree.is_chain:
            below = [0, *part.tree.depths()]
            own = len(below) - (part.rows - max(0, len(part.tokens) - 1))
            above = part.tree.ancestors()[own:]
            unread = part.rows - len(above)
            positions[unread:] = [root + depth for depth in below[own:]]
            before = (1 << root - origin) - 1
            words[unread:] = [before | _word(row) << root - origin for row in above]
        padding = rows - part.rows
        ids = [*part.tokens, *part.tree.tokens[part.held :]]
        return [
            *(part.slot, start, origin),
            *_padded(ids, padding, 0),
            *_padded(positions, padding, start),
            *map(_signed, _padded(words, padding, 1)),
        ]


def _fits(part: SlotInput) -> bool:
    """Return whether a part's rows and masked positions fit into a bucket."""
    return 0 < part.rows <= ROWS[-1] and part.rows + part.held < _BITS


def _idle(slot: int, context: int, rows: int) -> list[int]:
    """Return the inputs of a padding row: it writes beyond the context, and its mask does not matter."""
    return [slot, context, context, *[0] * rows, *[0] * rows, *[1] * rows]


def _least(count: int, sizes: Sequence[int]) -> int:
    return next(size for size in sizes if size >= count)


def _padded(values: Iterable[int], count: int, value: int) -> list[int]:
    return [*values, *[value] * count]


def _word(row: Iterable[bool]) -> int:
    return sum(1 << i for i, bit in enumerate(row) if bit)


def _signed(word: int) -> int:
    """Return the signed 64-bit integer with the same bits."""
    return word - (1 << 64) if word >> 63 else word
