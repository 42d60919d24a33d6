"""Turn a greedy round of one request into one call: guesses, the target's pass over them, and which are kept.

A pass over a few million numbers leaves nothing of Python's own in the processor's caches, so whatever runs
between two passes takes several times as long as it would by itself. Here nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, Array, addressof, c_float, c_int64, pointer
from dataclasses import dataclass
from typing import Any

import torch

from specclient_local.model.base import Model
from specclient_local.model.cache import BLOCK
from specclient_local.model.native.build import library
from specclient_local.model.native.passes import NativePasses
from specclient_local.model.native.tables import PassTable, RoundTable, SpanTable
from specclient_local.model.runner import CHUNK, Runner
from specclient_local.sequence import Sequence as Request

_UNREAD = 16
"""Most tokens that a draft reads before it guesses; of more it is given a pass that is laid out for them."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a round gave.

    Attributes:
        guesses: those that were verified; fewer than were asked for where a draft's logits were not finite.
        kept: how many of them, from the first on, the target says itself.
        token: what it says after them.
        largest: ``[guesses + 1]`` its largest logit after the root and after each guess.
    """

    guesses: list[int]
    kept: int
    token: int
    largest: list[float]


class NativeRounds:
    """Greedy rounds of a target, each of one request.

    Args:
        target: one that :meth:`of` would take.
    """

    def __init__(self, target: Runner) -> None:
        self._target = _Lane(target)
        self._drafts: dict[int, _Lane] = {}
        self._run = _compiled()
        self._values: Array[c_float] = (c_float * CHUNK)()

    @classmethod
    def of(cls, target: Model) -> NativeRounds | None:
        """Return rounds of a target; None where its passes are not compiled, or a layer slides."""
        return cls(target) if type(target) is Runner and target.decoder.guesses else None

    def verify(self, sequence: Request, guesses: Sequence[int]) -> Verified:
        """Verify guesses below a request's last token, the only one that the target has not read.

        The target's slot is then as long as if all guesses had been kept; so it is after :meth:`guess`.
        """
        told = self._target.block(sequence.granted, [sequence.tokens[-1], *guesses], len(guesses))
        return self._go(sequence, RoundTable(pointer(told), None, len(guesses)))

    def guess(
        self, draft: Model, sequence: Request, unread: Sequence[int], steps: int, vocab: int
    ) -> Verified | None:
        """Let a draft guess below a request's last token, and verify what it does.

        Args:
            draft: what guesses; its slot then holds ``unread`` and its own guesses but the last.
            sequence: the request.
            unread: what the draft has not; its last is the request's.
            steps: how many guesses, one at least.
            vocab: only ids below it.

        Returns:
            None where the draft cannot guess in one call; then nothing is done.
        """
        if type(draft) is not Runner or not draft.decoder.guesses or len(unread) > _UNREAD:
            return None
        if id(draft) not in self._drafts:
            self._drafts[id(draft)] = _Lane(draft)
        lane, slot = self._drafts[id(draft)], sequence.granted
        first = lane.chain(slot, unread, steps)
        told = self._target.block(slot, sequence.tokens[-1:], steps)
        found = self._go(sequence, RoundTable(pointer(told), pointer(first), steps, min(vocab, lane.vocab)))
        draft.cache.lengths[slot] += len(unread) + min(len(found.guesses), steps - 1)
        return found

    def _go(self, sequence: Request, table: RoundTable) -> Verified:
        lane = self._target
        table.ids, table.values = addressof(lane.ids), addressof(self._values)
        self._run(table)
        rows = table.guesses + 1
        lane.runner.cache.lengths[sequence.granted] += rows
        return Verified(lane.ids[1:rows], table.kept, table.token, self._values[:rows])


class _Lane:
    """A runner's passes over one slot, laid out once: from one to the next a few numbers change.

    Attributes:
        ids: ``[CHUNK]`` tokens of its next pass.
        vocab: columns of its logits.
    """

    def __init__(self, runner: Runner) -> None:
        assert isinstance(runner.decoder.passes, NativePasses)
        self.runner, self._passes = runner, runner.decoder.passes
        self.ids: Array[c_int64] = (c_int64 * CHUNK)()
        self._positions: Array[c_int64] = (c_int64 * CHUNK)()
        self._last, self._span = (c_int64 * 1)(), SpanTable()
        self.vocab = self._passes.head.outputs
        self._logits = torch.empty(0, self.vocab)
        self._told = PassTable()
        self._causal, self._stride = runner.causal.data_ptr(), runner.causal.stride(0)

    def chain(self, slot: int, tokens: Sequence[int], steps: int) -> PassTable:
        """Lay out tokens of which the last one's logits are wanted, to be followed by ``steps`` in all."""
        rows = len(tokens)
        self.ids[:rows] = [*tokens]
        told = self._pass(slot, rows, 1, steps)
        self._last[0] = rows - 1
        told.wanted_rows = addressof(self._last)
        return told

    def block(self, slot: int, tokens: Sequence[int], guesses: int) -> PassTable:
        """Lay out a root and guesses, those of them that are there; all of their logits are wanted."""
        self.ids[: len(tokens)] = [*tokens]
        return self._pass(slot, guesses + 1, guesses + 1, 0)

    def _pass(self, slot: int, rows: int, wanted: int, further: int) -> PassTable:
        runner, told, span = self.runner, self._told, self._span
        start = runner.cache.lengths[slot]
        end = start + rows
        if end + max(further - 1, 0) > runner.context or rows > CHUNK:
            raise ValueError(f"{rows} rows from {start} on exceed {runner.context} positions or one pass")
        length = -(-end // BLOCK) * BLOCK
        if wanted > len(self._logits):
            self._logits = torch.empty(1 << (wanted - 1).bit_length(), self.vocab)
        self._positions[:rows] = [*range(start, end)]
        span.rows, span.start, span.open, span.length = rows, start, start, length
        span.mask, span.mask_stride = self._causal + 4 * (runner.context - start), self._stride
        span.cache = addressof(runner.cache.views(slot).addresses)
        self._passes.fill(told, rows, length + further)
        told.spans, told.wanted, told.capacity = 1, wanted, runner.cache.rows.shape[3]
        told.ids, told.positions = addressof(self.ids), addressof(self._positions)
        told.span, told.logits = addressof(span), self._logits.data_ptr()
        return told


def _compiled() -> Callable[[RoundTable], Any]:
    run = library()
    assert run is not None  # who has compiled passes has it
    run.specclient_round.argtypes = [POINTER(RoundTable)]
    run.specclient_round.restype = None
    return run.specclient_round
