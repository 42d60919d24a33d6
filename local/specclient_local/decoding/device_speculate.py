"""Rounds of a :class:`Speculator` that run on the device as recorded CUDA graphs.

A round runs on the device if its requests draft chains or nothing and use no sampling parameters beyond
temperature, top-p and top-k. It is one recorded run, after which the host reads the results once. All other
requests take the general path over the same caches. Both paths give the same distribution, and use a seed's
random numbers alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, fields

import torch

from specclient.errors import EngineError
from specclient_local.decoding.round_entry import RoundOutcome, RoundResult
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.model.cuda_graphs.device_rounds import (
    DeviceRoundRequest,
    DeviceRoundResult,
    DeviceRounds,
)
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.sampling import NOT_FINITE
from specclient_local.request.params import Method, SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_DEFAULTS = SamplingParams()
_SUPPORTED = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed"),
        *("max_tokens", "min_tokens", "stop", "stop_token_ids", "overflow"),  # handled between rounds
        *("draft_length", "method", "prediction"),  # handled by drafters and length policies
    }
)
"""Parameters that rounds on the device support. A request that sets any other one takes the general path, so
a new parameter needs no change here."""

_UNSUPPORTED = tuple(field.name for field in fields(SamplingParams) if field.name not in _SUPPORTED)


@dataclass(slots=True)
class _DeviceRoundEntry:
    """One sequence in a round on the device.

    Attributes:
        sequence: the request.
        depth: number of tokens to draft.
        tree: the chain of a drafter without a model; empty if the draft model drafts.
    """

    sequence: Sequence
    depth: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class DeviceSpeculator(Speculator):
    """A :class:`Speculator` whose target has static shapes.

    In float32, sampled requests with a seed run in rounds of their own: the last bits of a batch's logits
    depend on its shape, so a batch could, very rarely, change the answer of a seed. Half precision promises
    no such reproducibility, so there all requests share rounds.

    Args:
        target, drafters, costs, share: see :class:`Speculator`. A draft model drafts on the device if it is a
            :class:`StaticRunner` on the target's device.
    """

    def __init__(
        self,
        target: StaticRunner,
        drafters: Mapping[Method, Drafter] | None = None,
        costs: Mapping[Method, RoundCosts] | None = None,
        *,
        share: bool = True,
    ) -> None:
        super().__init__(target, drafters, costs, share=share)
        drafter = self.drafters.get("draft")
        runner = drafter.runner if isinstance(drafter, DraftModel) else None
        fits = isinstance(runner, StaticRunner) and runner.device == target.device
        self._model = runner if isinstance(runner, StaticRunner) and fits else None
        self._rounds = DeviceRounds(target, self._model)
        self._exact = target.dense.weights.embedding.dtype == torch.float32

    def round(self, sequences: Seq[Sequence]) -> list[RoundOutcome]:
        """Emit at least one token for each sequence; see :meth:`Speculator.round`."""
        on_device: list[Sequence] = []
        others: list[Sequence] = []
        for sequence in sequences:
            (on_device if self._runs_on_device(sequence) else others).append(sequence)
        outcomes: dict[int, RoundOutcome] = {}
        for group in self._groups(self._plan(on_device, len(sequences))):
            try:
                outcomes.update(self._run_round(group))
            except Exception as error:  # noqa: BLE001 - the sequences of other rounds go on
                outcomes.update((entry.sequence.id, error) for entry in group)
        for batch in self._batches(others):
            try:
                outcomes.update(zip((s.id for s in batch), super().round(batch), strict=True))
            except Exception as error:  # noqa: BLE001 - as above
                outcomes.update((sequence.id, error) for sequence in batch)
        return [outcomes[sequence.id] for sequence in sequences]

    def _runs_on_device(self, sequence: Sequence) -> bool:
        """Return whether a sequence's next round can run on the device."""
        drafter, params = self._drafter_of(sequence), sequence.params
        return (
            sequence.logits_processor is None
            and all(getattr(params, name) == getattr(_DEFAULTS, name) for name in _UNSUPPORTED)
            and self.target.length(sequence.cache_slot) == len(sequence.tokens) - 1
            and (
                drafter is None
                or drafter.device_rounds
                or (self._model is not None and drafter is self.drafters.get("draft"))
            )
        )

    def _plan(self, sequences: Seq[Sequence], running: int) -> list[_DeviceRoundEntry]:
        """Choose each sequence's draft length, and let drafters without a model draft."""
        entries = {sequence.id: _DeviceRoundEntry(sequence) for sequence in sequences}
        able = [s for s in sequences if self._drafter_of(s) is not None and s.remaining > 1]
        shapes = {s.id: self._shape(s, len(able), running - len(able)) for s in able}
        for method, drafter in self.drafters.items():
            own = [s for s in able if s.method == method and len(shapes[s.id])]
            if own and not isinstance(drafter, DraftModel):
                trees = drafter.propose(own, [shapes[s.id] for s in own])
                for sequence, tree in zip(own, trees, strict=True):
                    entries[sequence.id].tree, entries[sequence.id].depth = tree, len(tree)
            elif own:
                for sequence in own:
                    entries[sequence.id].depth = self._draft_depth(sequence, shapes[sequence.id])
        return list(entries.values())

    def _draft_depth(self, sequence: Sequence, shape: DraftShape) -> int:
        """Return how many tokens the draft model can draft, after it has read those it lacks."""
        assert self._model is not None
        left = self._model.context - len(sequence.tokens) + 1
        depth = max(0, min(len(shape), left))
        done, whole = self._model.length(sequence.cache_slot), len(sequence.tokens) - 2
        if depth and done < whole:
            vocab = self._model.config.vocab_size
            unread = [token if token < vocab else 0 for token in sequence.tokens[done:whole]]
            self._model.prefill(sequence.cache_slot, unread)
        return depth

    def _batches(self, sequences: Seq[Sequence]) -> Iterator[list[Sequence]]:
        """Divide sequences into rounds; in float32, one that a seed must reproduce has a round of its own."""
        together = [s for s in sequences if not (self._exact and s.reproducible)]
        if together:
            yield together
        yield from ([s] for s in sequences if self._exact and s.reproducible)

    def _groups(self, entries: Seq[_DeviceRoundEntry]) -> Iterator[list[_DeviceRoundEntry]]:
        """Divide entries into rounds of at most ``most_slots`` requests."""
        own = {entry.sequence.id: entry for entry in entries}
        most = self._rounds.target.most_slots
        for batch in self._batches([entry.sequence for entry in entries]):
            for begin in range(0, len(batch), most):
                yield [own[sequence.id] for sequence in batch[begin : begin + most]]

    def _run_round(self, entries: Seq[_DeviceRoundEntry]) -> dict[int, RoundOutcome]:
        """Run one round on the device."""
        depth = max(entry.depth for entry in entries)
        result = self._rounds.run([_request(entry, depth) for entry in entries])
        outcomes: dict[int, RoundOutcome] = {}
        for entry, own in zip(entries, result, strict=True):
            try:
                outcomes[entry.sequence.id] = self._keep_result(entry, own, depth)
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes[entry.sequence.id] = error
        return outcomes

    def _keep_result(self, entry: _DeviceRoundEntry, result: DeviceRoundResult, depth: int) -> RoundResult:
        """Keep a sequence's accepted tokens.

        Raises:
            EngineError: the target's logits were not finite.
        """
        sequence, slot = entry.sequence, entry.sequence.cache_slot
        if not result.finite:
            raise EngineError(NOT_FINITE)
        root, path = len(sequence.tokens) - 1, list(range(len(result.tokens) - 1))
        sequence.random.consume(result.numbers_used)
        self.target.keep(slot, root, path)
        tree = entry.tree if len(entry.tree) else TokenTree.chain(result.drafted)
        sequence.counts.count(len(tree), len(tree), len(path))
        drafter = self._drafter_of(sequence)
        if entry.depth and isinstance(drafter, DraftModel):
            # The draft has read the root and all of its tokens but the last one of the round.
            drafter.runner.keep(slot, root, path[: depth - 1])
            if len(result.drafted) < entry.depth:
                drafter.mark_not_finite(sequence)
        elif drafter is not None:
            drafter.commit(sequence, tree, path)
        if slot in self._length_policies:
            self._length_policies[slot].update(tree, path)
        return RoundResult(result.tokens, entry.depth + 1)


def _request(entry: _DeviceRoundEntry, depth: int) -> DeviceRoundRequest:
    sequence = entry.sequence
    sampled = sequence.params.temperature > 0.0
    return DeviceRoundRequest(
        slot=sequence.cache_slot,
        tokens=sequence.tokens[-2:],
        start=len(sequence.tokens) - 1,
        depth=entry.depth,
        params=sequence.params,
        given=entry.tree.tokens or None,
        uniform=sequence.random.peek(2 * depth + 1) if sampled else (),
    )
