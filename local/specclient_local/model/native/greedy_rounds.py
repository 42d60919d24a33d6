"""Greedy rounds in one compiled call: draft a chain, run the target over it, and accept.

A pass over a few million weights evicts the interpreter's data from the processor's caches, so Python code
between two passes takes several times as long as it would alone. Here no Python code runs between the passes
of a round.
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
from specclient_local.model.kv_cache import POSITION_BLOCK, SlotRows
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

_MAX_UNREAD = 16
"""Maximum tokens of a request that the draft reads at the start of a compiled round; more take the general
path."""


class NativeRoundResult(NamedTuple):
    """The result of a compiled round for one request.

    Attributes:
        drafted: the N tokens that were verified; fewer than requested if the draft's logits were not finite.
        accepted: number of accepted tokens, from the first on.
        token: the target's token after them.
        max_logits: the target's largest logit after the root and after each drafted token, ``[N + 1]``.
    """

    drafted: list[int]
    accepted: int
    token: int
    max_logits: list[float]


class NativeRounds:
    """Compiled greedy rounds of a target, with a draft model or of requests that were drafted already.

    Args:
        target: a runner that :meth:`for_target` accepts.
    """

    def __init__(self, target: DecoderRunner) -> None:
        self._slots = slots = len(target.cache.lengths)
        self._target = _PreparedPass(target, MIN_PARALLEL_PRODUCTS, slots)
        self._drafts: dict[int, _PreparedPass] = {}
        self._run, self._verify = _compiled()
        self._values: Array[c_float] = (c_float * MAX_PASS_ROWS)()
        self._drafting, self._drafted = (c_int64 * slots)(), (c_int64 * slots)()
        self._accepted, self._tokens = (c_int64 * slots)(), (c_int64 * slots)()
        self._table = RoundStruct(
            self._target.where,
            drafting=addressof(self._drafting),
            ids=addressof(self._target.ids),
            drafted=addressof(self._drafted),
            accepted=addressof(self._accepted),
            tokens=addressof(self._tokens),
            values=addressof(self._values),
        )

    @classmethod
    def for_target(cls, target: ModelRunner) -> NativeRounds | None:
        """Return compiled rounds; None if the target's passes are not compiled or use a sliding window."""
        if not isinstance(target, DecoderRunner) or type(target) not in (DecoderRunner, HiddenStateRunner):
            return None
        return cls(target) if target.decoder.can_draft_chain else None

    def verify_all(
        self, sequences: Sequence[Request], chains: Sequence[Sequence[int]]
    ) -> list[NativeRoundResult] | None:
        """Verify a chain for each request in one pass of the target.

        Each request's last token is the only one that the target has not read. Afterwards the target's slots
        are as long as if all drafted tokens had been accepted, as after :meth:`draft_and_verify`; the caller
        truncates.

        Args:
            sequences: the requests.
            chains: drafted tokens of each; may be empty.

        Returns:
            One result per request, or None (and nothing is done) if the pass would have too many rows.
        """
        if not self._fits([*map(len, chains)]):
            return None
        self._target.set_chains(
            [(s.cache_slot, [s.tokens[-1], *own]) for s, own in zip(sequences, chains, strict=True)]
        )
        self._verify(self._target.where, self._accepted, self._tokens, self._values)
        self._target.store_hidden_states()
        return self._results(sequences, [*map(len, chains)], [*map(len, chains)])

    def draft_and_verify(
        self,
        draft: ModelRunner,
        sequences: Sequence[Request],
        unread: Sequence[Sequence[int]],
        steps: Sequence[int],
        vocab: int,
    ) -> list[NativeRoundResult] | None:
        """Draft chains below the last tokens of requests, and verify them in one pass of the target.

        Args:
            draft: the draft model. Afterwards the slots of the requests that draft hold ``unread`` and all
                drafted tokens but the last.
            sequences: the requests.
            unread: of those that draft, tokens that the draft has not read; the last one is the request's
                last token.
            steps: number of tokens to draft for each, at least one of them above 0.
            vocab: only ids below it are drafted.

        Returns:
            One result per request, or None (and nothing is done) if the draft cannot run in a compiled call
            or the pass would have too many rows.
        """
        if type(draft) is not DecoderRunner or not draft.decoder.can_draft_chain or not self._fits(steps):
            return None
        if max(map(len, unread)) > _MAX_UNREAD or sum(map(len, unread)) > MAX_PASS_ROWS:
            return None
        if id(draft) not in self._drafts:
            self._drafts[id(draft)] = _PreparedPass(draft, MIN_PARALLEL_PRODUCTS_AWAKE, self._slots)
        prepared, table = self._drafts[id(draft)], self._table
        drafting = [i for i, count in enumerate(steps) if count]
        self._drafting[: len(drafting)] = [*drafting]
        prepared.set_drafts([(sequences[i].cache_slot, unread[i], steps[i]) for i in drafting])
        self._target.set_chains(
            [(s.cache_slot, [s.tokens[-1], *[0] * count]) for s, count in zip(sequences, steps, strict=True)]
        )
        table.draft, table.vocab = prepared.where, min(vocab, prepared.vocab)
        results = self._run_round(sequences, steps)
        for i in drafting:
            read = len(unread[i]) + min(len(results[i].drafted), steps[i] - 1)
            draft.cache.lengths[sequences[i].cache_slot] += read
        return results

    def _fits(self, drafted: Sequence[int]) -> bool:
        """Return whether requests with so many drafted tokens fit into one pass."""
        return len(drafted) + sum(drafted) <= self._target.runner.shared

    def _run_round(self, sequences: Sequence[Request], steps: Sequence[int]) -> list[NativeRoundResult]:
        self._run(self._table)
        self._target.store_hidden_states()
        return self._results(sequences, steps, self._drafted[: len(steps)])

    def _results(
        self, sequences: Sequence[Request], steps: Sequence[int], drafted: Sequence[int]
    ) -> list[NativeRoundResult]:
        """Return the results of a pass, after which the target's slots hold its rows.

        Args:
            sequences: the requests.
            steps: rows of each, besides its root.
            drafted: how many of them have a drafted token.
        """
        ids, lengths, values = self._target.ids, self._target.runner.cache.lengths, self._values
        results: list[NativeRoundResult] = []
        root = 0
        for i, (sequence, count, own) in enumerate(zip(sequences, steps, drafted, strict=True)):
            end = root + 1 + own
            lengths[sequence.cache_slot] += 1 + count
            tokens = ids[root + 1 : end]
            results.append(NativeRoundResult(tokens, self._accepted[i], self._tokens[i], values[root:end]))
            root += 1 + count
        return results


class _PreparedPass:
    """A reusable ``PassStruct`` of a runner: from one pass to the next only a few fields change.

    Args:
        runner: the runner whose passes it describes.
        least: minimum products (rows times weights) of a pass for which several threads are used.
        most: maximum requests of one pass.

    Attributes:
        where: pointer to the struct of the next pass.
        ids: ``[MAX_PASS_ROWS]`` its tokens.
        vocab: number of columns of its logits.
    """

    def __init__(self, runner: DecoderRunner, least: int, most: int) -> None:
        assert isinstance(runner.decoder.passes, NativePasses)
        self.runner, self._passes, self._least = runner, runner.decoder.passes, least
        self.ids: Array[c_int64] = (c_int64 * MAX_PASS_ROWS)()
        self._positions: Array[c_int64] = (c_int64 * MAX_PASS_ROWS)()
        self._last, spans = (c_int64 * most)(), (SpanStruct * most)()
        self.vocab = self._passes.head.outputs
        self._pass_struct, self._wanted = PassStruct(), 0
        self._scratch: object = None
        self.where = pointer(self._pass_struct)
        self._pass_struct.capacity, self._pass_struct.span = runner.cache.rows.shape[3], addressof(spans)
        self._pass_struct.is_bfloat16 = runner.cache.rows.dtype == torch.bfloat16
        self._pass_struct.ids, self._pass_struct.positions = addressof(self.ids), addressof(self._positions)
        self._spans = [*spans]
        for span in self._spans:
            span.mask_stride, span.causal = runner.causal.stride(0), True
        self._causal = runner.causal.data_ptr() + 4 * runner.context
        self._feature_rows: list[Tensor] = []
        self._features: Callable[[int, int, int], Tensor] | None = None
        if isinstance(runner, HiddenStateRunner):
            self._features = partial(runner.features, layers=runner.layers)
            self._tapped = (c_int64 * len(runner.layers))(*runner.layers)
            self._pass_struct.taps, self._pass_struct.tapped = len(runner.layers), addressof(self._tapped)

    @torch.inference_mode()
    def store_hidden_states(self) -> None:
        """Copy the last pass's hidden states, if they are kept, to the positions of its keys and values."""
        if len(self._feature_rows) > 1:
            parts = torch.split(self._pass_features, [*map(len, self._feature_rows)])
            for place, own in zip(self._feature_rows, parts, strict=True):
                place.copy_(own)

    def set_drafts(self, parts: Sequence[tuple[int, Sequence[int], int]]) -> None:
        """Set up drafts: a pass over slots' tokens that wants their last logits, followed by further passes.

        Args:
            parts: slots, their tokens, and how many tokens to draft after them.
        """
        ids: list[int] = []
        longest = 0
        for i, (slot, tokens, steps) in enumerate(parts):
            longest = max(longest, self._place(i, slot, len(ids), len(tokens), steps - 1) + steps)
            ids += tokens
            self._last[i] = len(ids) - 1
        self.ids[: len(ids)] = [*ids]
        self._pass(len(parts), len(ids), len(parts), longest)
        self._pass_struct.wanted_rows = addressof(self._last)

    def set_chains(self, parts: Sequence[tuple[int, list[int]]]) -> None:
        """Set up a pass over roots and chains of requests, each a slot and its tokens. Wants all logits."""
        ids: list[int] = []
        longest = 0
        for i, (slot, tokens) in enumerate(parts):
            longest = max(longest, self._place(i, slot, len(ids), len(tokens)))
            ids += tokens
        self.ids[: len(ids)] = [*ids]
        self._pass(len(parts), len(ids), len(ids), longest)

    def _place(self, i: int, slot: int, first: int, rows: int, further: int = 0) -> int:
        """Set span ``i`` to a request's rows; return how many positions they may see, in whole blocks."""
        span, cache = self._spans[i], self.runner.cache
        start = cache.lengths[slot]
        end = start + rows
        if end + further > self.runner.context or rows > MAX_PASS_ROWS:
            raise ValueError(
                f"{rows} rows from position {start} on exceed the context of {self.runner.context} "
                f"or the {MAX_PASS_ROWS} rows of one pass"
            )
        length = -(-end // POSITION_BLOCK) * POSITION_BLOCK
        self._positions[first : first + rows] = [*range(start, end)]
        span.first, span.rows, span.start, span.open, span.length = first, rows, start, start, length
        span.mask = self._causal - 4 * start
        held = cache.views(slot)
        assert isinstance(held, SlotRows)  # only such caches have compiled passes
        span.cache = addressof(held.addresses)
        if self._features is not None:
            self._feature_rows[i:] = [self._features(slot, start, end)]
        return length

    def _pass(self, spans: int, rows: int, wanted: int, longest: int) -> None:
        """Set the fields that concern all rows."""
        table = self._pass_struct
        if self._feature_rows:
            self._pass_features = (
                self._feature_rows[0]
                if spans == 1
                else self._feature_rows[0].new_empty(rows, *self._feature_rows[0].shape[1:])
            )
            table.features = self._pass_features.data_ptr()
        if wanted > self._wanted:
            self._wanted = 1 << (wanted - 1).bit_length()
            self._logits = torch.empty(self._wanted, self.vocab)
            table.logits = self._logits.data_ptr()
        table.spans, table.rows, table.wanted = spans, rows, wanted
        table.threads = self._passes.room(rows, longest, self._least)
        if self._scratch is not self._passes.scratch:
            self._scratch = self._passes.scratch
            self._passes.fill(table)


def _compiled() -> tuple[Callable[[RoundStruct], Any], Callable[..., Any]]:
    run = library()
    assert run is not None  # compiled passes exist, so the library does
    run.specclient_round.argtypes = [POINTER(RoundStruct)]
    run.specclient_round.restype = None
    run.specclient_verify.argtypes = [
        POINTER(PassStruct),
        *(POINTER(kind) for kind in (c_int64, c_int64, c_float)),
    ]
    run.specclient_verify.restype = None
    return run.specclient_round, run.specclient_verify
