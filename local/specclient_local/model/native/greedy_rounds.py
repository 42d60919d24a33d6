"""Turn a greedy round of one request into one call: guesses, the target's pass over them, and which are kept.

A pass over a few million numbers leaves nothing of Python's own in the processor's caches, so whatever runs
between two passes takes several times as long as it would by itself. Here nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, Array, addressof, c_float, c_int64, pointer
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.hidden_state_runner import HiddenStateRunner
from specclient_local.model.kv_cache import POSITION_BLOCK
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.native.build import library
from specclient_local.model.native.passes import (
    MIN_PARALLEL_PRODUCTS,
    MIN_PARALLEL_PRODUCTS_AWAKE,
    NativePasses,
)
from specclient_local.model.native.structs import PassStruct, RoundStruct, SpanStruct
from specclient_local.model.pass_input import MAX_PASS_ROWS
from specclient_local.request.sequence import Sequence as Request

_UNREAD = 16
"""Most tokens that a draft reads before it guesses; of more it is given a pass that is laid out for them."""


class NativeRoundResult(NamedTuple):
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
    """Greedy rounds of a target: of one request, and its draft's steps with it, or of several.

    Args:
        target: one that :meth:`of` would take.
    """

    def __init__(self, target: DecoderRunner) -> None:
        self._target = _PreparedPass(target, MIN_PARALLEL_PRODUCTS)
        self._drafts: dict[int, _PreparedPass] = {}
        slots = len(target.cache.lengths)
        self._several = _PreparedPass(target, MIN_PARALLEL_PRODUCTS, slots)
        self._run, self._verify = _compiled()
        self._values: Array[c_float] = (c_float * MAX_PASS_ROWS)()
        self._table = RoundStruct(self._target.where)
        self._table.ids, self._table.values = addressof(self._target.ids), addressof(self._values)
        self._kept, self._tokens = (c_int64 * slots)(), (c_int64 * slots)()

    @classmethod
    def of(cls, target: ModelRunner) -> NativeRounds | None:
        """Return rounds of a target; None where its passes are not compiled, or a layer slides."""
        if not isinstance(target, DecoderRunner) or type(target) not in (DecoderRunner, HiddenStateRunner):
            return None
        return cls(target) if target.decoder.guesses else None

    def verify_all(
        self, sequences: Sequence[Request], guesses: Sequence[Sequence[int]]
    ) -> list[NativeRoundResult] | None:
        """Verify guesses below requests' last tokens, all that the target has not read of them, in one pass.

        The target's slots are then as long as if all guesses had been kept; so is one after :meth:`guess`.

        Returns:
            None where the pass would have too many rows; then nothing is done.
        """
        if len(sequences) + sum(map(len, guesses)) > self._several.runner.shared:
            return None
        lane, lengths, values = self._several, self._several.runner.cache.lengths, self._values
        lane.blocks([(s.granted, [s.tokens[-1], *own]) for s, own in zip(sequences, guesses, strict=True)])
        self._verify(lane.where, self._kept, self._tokens, values)
        lane.settle()
        found: list[NativeRoundResult] = []
        end = 0
        for i, (sequence, own) in enumerate(zip(sequences, guesses, strict=True)):
            begin, end = end, end + 1 + len(own)
            lengths[sequence.granted] += end - begin
            found.append(NativeRoundResult([*own], self._kept[i], self._tokens[i], values[begin:end]))
        return found

    def guess(
        self, draft: ModelRunner, sequence: Request, unread: Sequence[int], steps: int, vocab: int
    ) -> NativeRoundResult | None:
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
        if type(draft) is not DecoderRunner or not draft.decoder.guesses or len(unread) > _UNREAD:
            return None
        if id(draft) not in self._drafts:
            self._drafts[id(draft)] = _PreparedPass(draft, MIN_PARALLEL_PRODUCTS_AWAKE)
        lane, slot, table = self._drafts[id(draft)], sequence.granted, self._table
        lane.chain(slot, unread, steps)
        self._target.block(slot, sequence.tokens[-1], steps)
        table.draft, table.guesses, table.vocab = lane.where, steps, min(vocab, lane.vocab)
        found = self._go(slot)
        draft.cache.lengths[slot] += len(unread) + min(len(found.guesses), steps - 1)
        return found

    def _go(self, slot: int) -> NativeRoundResult:
        lane, table = self._target, self._table
        self._run(table)
        rows = table.guesses + 1
        lane.runner.cache.lengths[slot] += rows
        return NativeRoundResult(lane.ids[1:rows], table.accepted, table.token, self._values[:rows])


class _PreparedPass:
    """A runner's passes, laid out once: from one to the next a few numbers change.

    Args:
        runner: whose.
        least: products of a pass from which on threads share it.
        most: requests of one pass.

    Attributes:
        where: the next pass, as the library is told of it.
        ids: ``[CHUNK]`` tokens of it.
        vocab: columns of its logits.
    """

    def __init__(self, runner: DecoderRunner, least: int, most: int = 1) -> None:
        assert isinstance(runner.decoder.passes, NativePasses)
        self.runner, self._passes, self._least = runner, runner.decoder.passes, least
        self.ids: Array[c_int64] = (c_int64 * MAX_PASS_ROWS)()
        self._positions: Array[c_int64] = (c_int64 * MAX_PASS_ROWS)()
        self._last, spans = (c_int64 * 1)(), (SpanStruct * most)()
        self.vocab = self._passes.head.outputs
        self._told, self._wanted = PassStruct(), 0
        self._scratch: object = None
        self.where = pointer(self._told)
        self._told.capacity, self._told.span = runner.cache.rows.shape[3], addressof(spans)
        self._told.ids, self._told.positions = addressof(self.ids), addressof(self._positions)
        self._spans = [*spans]
        for span in self._spans:
            span.mask_stride = runner.causal.stride(0)
        self._causal = runner.causal.data_ptr() + 4 * runner.context
        self._stay: list[Tensor] = []
        self._features: Callable[[int, int, int], Tensor] | None = None
        if isinstance(runner, HiddenStateRunner):
            self._features = partial(runner.features, layers=runner.layers)
            self._tapped = (c_int64 * len(runner.layers))(*runner.layers)
            self._told.taps, self._told.tapped = len(runner.layers), addressof(self._tapped)

    @torch.inference_mode()
    def settle(self) -> None:
        """Put the hidden states of the last pass, if they are kept, where its keys and values are."""
        if len(self._stay) > 1:
            parts = torch.split(self._left, [*map(len, self._stay)])
            for place, own in zip(self._stay, parts, strict=True):
                place.copy_(own)

    def chain(self, slot: int, tokens: Sequence[int], steps: int) -> None:
        """Lay out tokens of which the last one's logits are wanted, to be followed by ``steps`` in all."""
        rows = len(tokens)
        self.ids[:rows] = [*tokens]
        length = self._place(0, slot, 0, rows, steps - 1)
        self._pass(1, rows, 1, length + steps)
        self._last[0] = rows - 1
        self._told.wanted_rows = addressof(self._last)

    def block(self, slot: int, root: int, guesses: int) -> None:
        """Lay out a root and so many guesses, which are still to be made; all of their logits are wanted."""
        self.ids[0] = root
        rows = guesses + 1
        self._pass(1, rows, rows, self._place(0, slot, 0, rows))

    def blocks(self, parts: Sequence[tuple[int, list[int]]]) -> None:
        """Lay out roots and guesses of several requests, each with its slot."""
        ids: list[int] = []
        longest = 0
        for i, (slot, tokens) in enumerate(parts):
            longest = max(longest, self._place(i, slot, len(ids), len(tokens)))
            ids += tokens
        self.ids[: len(ids)] = [*ids]
        self._pass(len(parts), len(ids), len(ids), longest)

    def _place(self, i: int, slot: int, first: int, rows: int, further: int = 0) -> int:
        """Say where a request's rows go, and return how many positions they see, in whole blocks."""
        span, cache = self._spans[i], self.runner.cache
        start = cache.lengths[slot]
        end = start + rows
        if end + further > self.runner.context or rows > MAX_PASS_ROWS:
            raise ValueError(
                f"{rows} rows from {start} on exceed {self.runner.context} positions or one pass"
            )
        length = -(-end // POSITION_BLOCK) * POSITION_BLOCK
        self._positions[first : first + rows] = [*range(start, end)]
        span.first, span.rows, span.start, span.open, span.length = first, rows, start, start, length
        span.mask = self._causal - 4 * start
        span.cache = addressof(cache.views(slot).addresses)
        if self._features is not None:
            self._stay[i:] = [self._features(slot, start, end)]
        return length

    def _pass(self, spans: int, rows: int, wanted: int, longest: int) -> None:
        """Say what holds for all rows."""
        told = self._told
        if self._stay:
            self._left = (
                self._stay[0] if spans == 1 else self._stay[0].new_empty(rows, *self._stay[0].shape[1:])
            )
            told.features = self._left.data_ptr()
        if wanted > self._wanted:
            self._wanted = 1 << (wanted - 1).bit_length()
            self._logits = torch.empty(self._wanted, self.vocab)
            told.logits = self._logits.data_ptr()
        told.spans, told.rows, told.wanted = spans, rows, wanted
        told.threads = self._passes.room(rows, longest, self._least)
        if self._scratch is not self._passes.scratch:
            self._scratch = self._passes.scratch
            self._passes.fill(told)


def _compiled() -> tuple[Callable[[RoundStruct], Any], Callable[..., Any]]:
    run = library()
    assert run is not None  # who has compiled passes has it
    run.specclient_round.argtypes = [POINTER(RoundStruct)]
    run.specclient_round.restype = None
    run.specclient_verify.argtypes = [
        POINTER(PassStruct),
        *(POINTER(kind) for kind in (c_int64, c_int64, c_float)),
    ]
    run.specclient_verify.restype = None
    return run.specclient_round, run.specclient_verify
