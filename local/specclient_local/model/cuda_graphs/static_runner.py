"""Model runner whose small passes have one of a few static shapes, recorded as CUDA graphs and replayed.

The numbers of slots and of rows per slot are padded to the next of a few sizes; where attention needs a mask,
the number of attended positions is padded, too. Each such bucket has its own input buffer and is recorded
when it first occurs (``graph_recorder``). A replay is one launch instead of hundreds. On a CPU the same
function runs on the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.dense_decoder import DenseDecoder, HiddenStateWriter
from specclient_local.model.cuda_graphs.device_ops import TorchOps
from specclient_local.model.cuda_graphs.graph_recorder import (
    GraphRecorder,
    RecordedRun,
    RecordingCache,
    out_of_memory,
)
from specclient_local.model.cuda_graphs.pass_layout import WORD_BITS, DensePassLayout
from specclient_local.model.cuda_graphs.triton_ops import select_ops
from specclient_local.model.decoder import TransformerDecoder
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.pass_input import MAX_PASS_ROWS, SlotInput
from specclient_local.model.weights import DecoderWeights

SLOTS = (1, 4, 16, 64)
ROWS = (1, 2, 4, 8, 16)

PROMPT_ROWS = (16, 64, MAX_PASS_ROWS)
"""Numbers of rows to which chunks of prompts are padded where passes are recorded."""

PADDING_POSITIONS = ROWS[-1]
"""Additional cache positions per slot for the keys and values of padding rows; they are never read."""

_SHORTEST = 128
"""Minimum number of positions attended."""

_HEAD = 3
_FIELDS = 3


class PassBucket(NamedTuple):
    """The shape of a pass; ``length`` and ``first`` as in
    :class:`~specclient_local.model.cuda_graphs.pass_layout.DensePassLayout`."""

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
        pages: number of pages of the cache; None for one with a place for each position of each slot.

    Attributes:
        dense: the model with static shapes.
        recorder: records its passes.
        states: where passes store hidden states; None if no heads are loaded.
        reads_prompts: whether chunks of prompts have static shapes, too. Only where they are recorded: on
            other devices, padding them would cost more than it saves.
    """

    states: HiddenStateWriter | None = None

    def __init__(
        self,
        decoder: TransformerDecoder,
        weights: DecoderWeights,
        slots: int,
        context: int,
        *,
        records: bool = True,
        pages: int | None = None,
    ) -> None:
        super().__init__(decoder, slots, context, PADDING_POSITIONS, pages=pages)
        self.recorder = GraphRecorder(self.device, records=records)
        ops = select_ops(decoder.config, self.device, kernels=self.recorder.records)
        self.dense = DenseDecoder(decoder.config, weights, context, ops=ops)
        self.recorder.simplify.append(self.use_torch_ops)
        most = min(slots, SLOTS[-1])
        self._sizes = (*(size for size in SLOTS if size < most), most)
        self.shared = most * ROWS[-1]
        shape = self.shared, decoder.config.vocab_size
        try:
            self._logits = torch.empty(shape, dtype=decoder.dtype, device=self.device)
        except torch.OutOfMemoryError as error:
            raise out_of_memory(f"the logits of {shape[0]} rows", self.device) from error
        self.reads_prompts = self.recorder.records
        self._buckets: RecordingCache[tuple[PassBucket, str], RecordedPass] = RecordingCache()

    @property
    def prefix_granularity(self) -> int:
        """``MAX_PASS_ROWS``, because the last bits of a row's results depend on the shape of its pass."""
        return MAX_PASS_ROWS

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Numbers of slots to which passes are padded, ascending."""
        return self._sizes

    @property
    def most_slots(self) -> int:
        """Maximum number of slots per pass."""
        return self._sizes[-1]

    def draft_chains(
        self,
        parts: Sequence[SlotInput],  # noqa: ARG002
        steps: Sequence[int],  # noqa: ARG002
        vocab: int,  # noqa: ARG002
    ) -> list[list[int]] | None:
        """Return None: chains are not supported, because passes are recorded one by one."""
        return None

    def use_torch_ops(self) -> None:
        """Compute the operations between matrix products by PyTorch from now on."""
        self.dense.ops = TorchOps()

    def seats(self, slots: Sequence[int]) -> BatchSeats:
        """Assign slots to rows of the smallest sufficient batch; slot i to row i if all slots fit so."""
        size = _least(len(slots), self._sizes)
        if max(slots) < size:
            return BatchSeats([*range(size)], {slot: slot for slot in slots}, first=True)
        padded = [*slots, *[slots[0]] * (size - len(slots))]
        return BatchSeats(padded, {slot: row for row, slot in enumerate(slots)}, first=False)

    def in_order(self, seats: BatchSeats) -> bool:
        """Return whether a pass is recorded for slots in the order of the batch; kernels need no order."""
        return seats.first and not self.dense.ops.reads_in_place

    def attended(self, length: int) -> int:
        """Return the padded number of attended positions for ``length`` used ones: a power of two.

        The whole capacity where kernels read the used positions only: one recording serves every length.
        """
        capacity = self.cache.positions
        if self.dense.ops.reads_in_place:
            return capacity
        return min(capacity, max(_SHORTEST, 1 << (length - 1).bit_length()))

    def has_bucket(self, parts: Sequence[SlotInput], *, unread: bool) -> bool:
        """Return whether a pass is small enough for static shapes."""
        return not unread and len(parts) <= self.most_slots and all(_fits(part) for part in parts)

    @torch.inference_mode()
    def run_pass(self, parts: Sequence[SlotInput], *, unread: bool = False) -> list[Tensor]:
        """Run a pass in the smallest bucket that fits, or as in the base class if none fits."""
        if unread and self.reads_prompts and len(parts) == 1 and not len(parts[0].tree):
            self._read_chunk(parts[0])
            return []
        if not self.has_bucket(parts, unread=unread):
            return super().run_pass(parts, unread=unread)
        ends = [self.cache.lengths[part.slot] + part.rows for part in parts]
        if max(ends) > self.context:
            raise ValueError(f"{max(ends)} positions exceed the {self.context} a slot can hold")
        self.cache.prepare((part.slot, end) for part, end in zip(parts, ends, strict=True))
        seats = self.seats([part.slot for part in parts])
        rows = _least(max(part.rows for part in parts), ROWS)
        bucket = PassBucket(len(seats.slots), rows, self.attended(max(ends)), self.in_order(seats))
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

    def _read_chunk(self, part: SlotInput) -> None:
        """Append a chunk of a prompt without logits; rows of padding write behind it or to a spare place."""
        start = self.cache.lengths[part.slot]
        if start + part.rows > self.context:
            raise ValueError(f"{start + part.rows} positions exceed the {self.context} a slot can hold")
        self.cache.prepare([(part.slot, start + part.rows)])
        rows = _least(part.rows, PROMPT_ROWS)
        values = torch.tensor([[part.slot, start, *_padded(part.tokens, rows - part.rows, 0)]])
        bucket = PassBucket(1, rows, self.attended(min(start + rows, self.context)), first=False)
        self._run(bucket, values, self._prompt_pass, f"a prompt's chunk of {rows} rows")
        self.cache.lengths[part.slot] = start + part.rows

    def _prompt_pass(self, bucket: PassBucket, inputs: Tensor) -> None:
        """Compute a chunk of a prompt: slot, first position, ids."""
        slots, starts = inputs[:, 0].contiguous(), inputs[:, 1].contiguous()
        block = DensePassLayout.prompt(slots, starts, bucket.rows, bucket.length)
        tables = self.dense.tables(block, self.cache)
        self.dense.hidden(inputs[:, 2:], tables, self.cache, self.states)

    def _replay(self, bucket: PassBucket, values: Tensor) -> Tensor:
        """Run a bucket and return its logits ``[S, R, V]``; the next pass overwrites them."""
        named = f"a pass of {bucket.rows} rows in {bucket.slots} slots over {bucket.length} positions"
        self._run(bucket, values, self._pass, named)
        return self._logits[: bucket.slots * bucket.rows].view(bucket.slots, bucket.rows, -1)

    def _run(
        self, bucket: PassBucket, values: Tensor, run: Callable[[PassBucket, Tensor], None], named: str
    ) -> None:
        """Run a pass of a bucket; record it when it first occurs."""
        key = bucket, run.__name__
        held = self._buckets.get(key)
        if held is None:
            inputs = values.to(self.device)
            held = RecordedPass(inputs, self.recorder.record(lambda: run(bucket, inputs), named))
            self._buckets.put(key, held)
        held.inputs.copy_(values, non_blocking=True)
        held.run()

    def _pass(self, bucket: PassBucket, inputs: Tensor) -> None:
        """Compute the logits of inputs in the format of :meth:`_fields`."""
        slots, starts, origins = inputs[:, :_HEAD].unbind(1)
        ids, positions, words = inputs[:, _HEAD:].view(bucket.slots, _FIELDS, -1).unbind(1)
        block = DensePassLayout(
            slots=slots.contiguous(),
            places=starts[:, None] + torch.arange(bucket.rows, device=self.device),
            positions=positions.contiguous(),
            origins=origins.contiguous(),
            words=words.contiguous(),
            ends=torch.where(starts >= self.context, 1, starts + bucket.rows),
            length=bucket.length,
            first=bucket.first,
        )
        tables = self.dense.tables(block, self.cache)
        logits = self.dense.logits(self.dense.hidden(ids, tables, self.cache, self.states))
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
    return 0 < part.rows <= ROWS[-1] and part.rows + part.held < WORD_BITS


def _idle(slot: int, context: int, rows: int) -> list[int]:
    """Return the inputs of a padding row: it writes beyond the context, and attends to one position."""
    return [slot, context, 0, *[0] * rows, *[0] * rows, *[1] * rows]


def _least(count: int, sizes: Sequence[int]) -> int:
    return next(size for size in sizes if size >= count)


def _padded(values: Iterable[int], count: int, value: int) -> list[int]:
    return [*values, *[value] * count]


def _word(row: Iterable[bool]) -> int:
    return sum(1 << i for i, bit in enumerate(row) if bit)


def _signed(word: int) -> int:
    """Return the signed 64-bit integer with the same bits."""
    return word - (1 << 64) if word >> 63 else word
