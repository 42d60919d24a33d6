"""Rounds of a :class:`Speculator` that run on the device as recorded CUDA graphs.

A round runs on the device if its requests draft chains or nothing and use no sampling parameters beyond
temperature, top-p, top-k and verification. Draft models, EAGLE heads and Medusa heads draft in it; other
drafters propose beforehand. It is one recorded run, after which the host reads the results once. All other
requests take the general path over the same caches. Both paths give the same distribution, and use a seed's
random numbers alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import fields
from typing import ClassVar

import torch

from specclient.errors import EngineError
from specclient_local.decoding.common_lengths import CommonLengths
from specclient_local.decoding.device_round_entry import DeviceRoundEntry, device_draft
from specclient_local.decoding.round_entry import RoundOutcome, RoundResult
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape, chain
from specclient_local.drafting.eagle import EagleDrafter
from specclient_local.drafting.length_policy import AdaptiveLength, RecentAcceptance
from specclient_local.drafting.medusa import MedusaDrafter
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.model.cuda_graphs.device_drafts import DeviceDraft
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.cuda_graphs.round_layout import DeviceRoundResult
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.prefix_cache import PrefixSharing
from specclient_local.model.sampling import NOT_FINITE
from specclient_local.request.params import Method, SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_DEFAULTS = SamplingParams()
_SUPPORTED = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "verification"),
        *("max_tokens", "min_tokens", "stop", "stop_token_ids", "overflow"),  # handled between rounds
        *("draft_length", "method", "prediction"),  # handled by drafters and length policies
    }
)
"""Parameters that rounds on the device support. A request that sets any other one takes the general path, so
a new parameter needs no change here."""

_UNSUPPORTED = tuple(field.name for field in fields(SamplingParams) if field.name not in _SUPPORTED)


class DeviceSpeculator(Speculator):
    """A :class:`Speculator` whose target has static shapes.

    In float32, sampled requests with a seed run in rounds of their own: the last bits of a batch's logits
    depend on its shape, so a batch could, very rarely, change the answer of a seed. Half precision promises
    no such reproducibility, so there all requests share rounds.

    Args:
        target, drafters, costs, sharing: see :class:`Speculator`. A draft model drafts on the device if it is
            a :class:`StaticRunner` on the target's device; heads do if the target keeps their hidden states.
        clock: returns seconds, by which rounds are timed.

    Attributes:
        device_rounds: the rounds on the device.
        continued: whether they can be continued before their results are read.
    """

    continued: ClassVar[bool] = False

    def __init__(
        self,
        target: StaticRunner,
        drafters: Mapping[Method, Drafter] | None = None,
        costs: Mapping[Method, RoundCosts] | None = None,
        *,
        sharing: PrefixSharing = "all",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(target, drafters, costs, sharing=sharing)
        drafts = {method: device_draft(drafter, target) for method, drafter in self.drafters.items()}
        self._drafts: dict[str, DeviceDraft] = {m: draft for m, draft in drafts.items() if draft is not None}
        self.device_rounds = DeviceRounds(target, self._drafts, continued=self.continued)
        self._supported: dict[int, tuple[SamplingParams, bool]] = {}
        self._clock = clock
        self._exact = target.dense.weights.embedding.dtype == torch.float32
        drafting = [method for method in self.drafters if method in self._drafts]
        self._lengths = CommonLengths(drafting, target.batch_sizes)

    def round(self, sequences: Seq[Sequence]) -> list[RoundOutcome]:
        """Emit at least one token for each sequence; see :meth:`Speculator.round`."""
        begun = self._begin()
        groups, others = self._divided(sequences)
        return self._run_all(sequences, groups, others, begun)

    def _begin(self) -> tuple[float, int]:
        """Return the time, and the number of recordings: rounds are not timed while one is recorded."""
        return self._clock(), self.device_rounds.target.recorder.recorded

    def _divided(self, sequences: Seq[Sequence]) -> tuple[list[list[DeviceRoundEntry]], list[Sequence]]:
        """Return the planned rounds on the device, and the sequences that take the general path."""
        on_device: list[DeviceRoundEntry] = []
        others: list[Sequence] = []
        for sequence in sequences:
            drafter = self._drafter_of(sequence)
            if self._runs_on_device(sequence, drafter):
                on_device.append(DeviceRoundEntry(sequence, drafter))
            else:
                others.append(sequence)
        return list(self._groups(self._plan(on_device, len(sequences)))), others

    def _run_all(
        self,
        sequences: Seq[Sequence],
        groups: list[list[DeviceRoundEntry]],
        others: list[Sequence],
        begun: tuple[float, int],
    ) -> list[RoundOutcome]:
        """Run planned rounds one after another, and then those of the general path."""
        outcomes: dict[int, RoundOutcome] = {}
        for group in groups:
            try:
                outcomes.update(self._run_round(group))
            except Exception as error:  # noqa: BLE001 - the sequences of other rounds go on
                outcomes.update((entry.sequence.id, error) for entry in group)
        for batch in self._batches(others):
            try:
                outcomes.update(zip((s.id for s in batch), super().round(batch), strict=True))
            except Exception as error:  # noqa: BLE001 - as above
                outcomes.update((sequence.id, error) for sequence in batch)
        if len(groups) == 1 and not others:
            self._add_time(groups[0], begun)
        return [outcomes[sequence.id] for sequence in sequences]

    def _add_time(self, group: list[DeviceRoundEntry], begun: tuple[float, int]) -> None:
        """Keep the time of a round that ends now, unless something was recorded in it."""
        seconds, recorded = self._clock() - begun[0], self.device_rounds.target.recorder.recorded
        if recorded == begun[1]:
            params, depth = [entry.sequence.params for entry in group], max(entry.depth for entry in group)
            self._lengths.add(self._drafting(group), depth, params, seconds)

    def _grows_trees(self, sequence: Sequence) -> bool:
        """Return whether a sequence's rounds verify trees; those with a draft on the device do not."""
        return sequence.method not in self._drafts or sequence.params.draft_tree is not None

    def _runs_on_device(self, sequence: Sequence, drafter: Drafter | None) -> bool:
        """Return whether a sequence's next round can run on the device."""
        return (
            sequence.logits_processor is None
            and self._supports(sequence.cache_slot, sequence.params)
            and self.target.length(sequence.cache_slot) == len(sequence.tokens) - 1
            and (
                drafter is None
                or drafter.device_rounds
                or (sequence.method in self._drafts and self._has_states(sequence, drafter))
            )
        )

    def _has_states(self, sequence: Sequence, drafter: Drafter) -> bool:
        """Return whether a draft on the device has what it reads: heads need a hidden state of the target."""
        return isinstance(drafter, DraftModel) or len(sequence.tokens) > 1

    def _supports(self, slot: int, params: SamplingParams) -> bool:
        """Return whether rounds on the device support a request's parameters; checked once a request."""
        known = self._supported.get(slot)
        if known is None or known[0] is not params:
            usable = all(getattr(params, name) == getattr(_DEFAULTS, name) for name in _UNSUPPORTED)
            known = self._supported[slot] = params, usable
        return known[1]

    def _plan(self, entries: list[DeviceRoundEntry], running: int) -> list[DeviceRoundEntry]:
        """Choose each sequence's draft length, and let drafters without a draft on the device draft.

        Args:
            entries: the round's entries, which are changed.
            running: number of sequences that run, on the device or not.
        """
        able = [e for e in entries if e.drafter is not None and e.sequence.remaining > 1]
        by_method: dict[Method, list[tuple[DeviceRoundEntry, DraftShape]]] = {}
        alike = self._draft_alike(able, running)
        for entry in able:
            if entry.sequence.id in alike:
                continue
            shape = self._shape(entry.sequence, len(able), running - len(able))
            if len(shape):
                by_method.setdefault(entry.sequence.method, []).append((entry, shape))
        for method, own in by_method.items():
            if method in self._drafts:
                for entry, shape in own:
                    entry.depth = self._draft_depth(entry.sequence, shape)
                continue
            drafter = self.drafters[method]
            trees = drafter.propose([entry.sequence for entry, _ in own], [shape for _, shape in own])
            for (entry, _), tree in zip(own, trees, strict=True):
                entry.tree, entry.depth = tree, len(tree)
        return entries

    def _draft_alike(self, able: list[DeviceRoundEntry], running: int) -> set[int]:
        """Choose one length for the sequences that draft on the device and adapt; return their ids."""
        found: set[int] = set()
        for method in self._lengths.methods:
            own = self._adapting(able, method)
            if not own:
                continue
            length = self._common_length(method, own, able, running)
            for entry, _ in own:
                self._set_depth(entry, length)
                found.add(entry.sequence.id)
        return found

    def _adapting(
        self, entries: Seq[DeviceRoundEntry], method: Method
    ) -> list[tuple[DeviceRoundEntry, AdaptiveLength]]:
        """Return the entries of a method whose lengths follow its costs, with their policies."""
        return [
            (entry, policy)
            for entry in entries
            if entry.sequence.method == method
            and isinstance(policy := self._length_policies[entry.sequence.cache_slot], AdaptiveLength)
        ]

    def _common_length(
        self,
        method: Method,
        own: list[tuple[DeviceRoundEntry, AdaptiveLength]],
        able: list[DeviceRoundEntry],
        running: int,
    ) -> int:
        """Return the number of tokens that adapting requests of a method draft in a round."""
        context = sum(len(entry.sequence.tokens) for entry, _ in own) // len(own)
        params = [entry.sequence.params for entry in able]
        return self._lengths.next(method, [policy for _, policy in own], context, running, params)

    def _set_depth(self, entry: DeviceRoundEntry, length: int) -> None:
        """Let a request that adapts draft so many tokens, within the limits of answer and context."""
        sequence, entry.wanted = entry.sequence, length
        room = min(sequence.remaining - 1, self.target.context - len(sequence.tokens))
        room = self._prompts.room(sequence, min(length, room)) if length and room > 0 else 0
        if room > 0:
            entry.depth = self._draft_depth(sequence, chain(min(length, room)))

    def _recent_acceptance(self, method: Method) -> RecentAcceptance | None:
        return self._lengths.recent(method)

    def _draft_depth(self, sequence: Sequence, shape: DraftShape) -> int:
        """Return how many tokens a draft on the device can draft, after it has read those it lacks."""
        drafter = self.drafters[sequence.method]
        if isinstance(drafter, MedusaDrafter):
            return min(len(shape), drafter.depth)
        if isinstance(drafter, EagleDrafter):
            return drafter.catch_up(sequence, min(len(shape), drafter.depth))
        assert isinstance(drafter, DraftModel)
        runner, slot = drafter.runner, sequence.cache_slot
        depth = max(0, min(len(shape), runner.context - len(sequence.tokens) + 1))
        done, whole = runner.length(slot), len(sequence.tokens) - 2
        if depth and done < whole:
            vocab = runner.config.vocab_size
            unread = [token if token < vocab else 0 for token in sequence.tokens[done:whole]]
            runner.prefill(slot, unread)
        return depth

    def _batches(self, sequences: Seq[Sequence]) -> Iterator[list[Sequence]]:
        """Divide sequences into rounds; in float32, one that a seed must reproduce has a round of its own."""
        together = [s for s in sequences if not (self._exact and s.reproducible)]
        if together:
            yield together
        yield from ([s] for s in sequences if self._exact and s.reproducible)

    def _groups(self, entries: Seq[DeviceRoundEntry]) -> Iterator[list[DeviceRoundEntry]]:
        """Divide entries into rounds of at most ``most_slots`` requests and one draft on the device."""
        own = {entry.sequence.id: entry for entry in entries}
        most = self.device_rounds.target.most_slots
        for batch in self._batches([entry.sequence for entry in entries]):
            for group in self._by_draft([own[sequence.id] for sequence in batch]):
                for begin in range(0, len(group), most):
                    yield group[begin : begin + most]

    def _by_draft(self, entries: list[DeviceRoundEntry]) -> list[list[DeviceRoundEntry]]:
        """Group entries by their draft on the device; those without one join the first group."""
        groups: dict[str, list[DeviceRoundEntry]] = {}
        others: list[DeviceRoundEntry] = []
        for entry in entries:
            drafts = entry.depth and entry.sequence.method in self._drafts
            (groups.setdefault(entry.sequence.method, []) if drafts else others).append(entry)
        if not groups:
            return [others] if others else []
        first, *rest = groups.values()
        return [[*first, *others], *rest]

    def _run_round(self, entries: Seq[DeviceRoundEntry]) -> dict[int, RoundOutcome]:
        """Run one round on the device."""
        depth = max(entry.depth for entry in entries)
        drafter = self._drafting(entries)
        tail = self._tail(drafter, depth)
        result = self.device_rounds.run([entry.request(depth, tail) for entry in entries], drafter)
        outcomes: dict[int, RoundOutcome] = {}
        for entry, own in zip(entries, result, strict=True):
            try:
                outcomes[entry.sequence.id] = self._keep_result(entry, own, depth)
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes[entry.sequence.id] = error
        return outcomes

    def _tail(self, drafter: Method | None, depth: int) -> int:
        """Return the number of last tokens that a round reads."""
        return self._drafts[drafter].tail(depth) if drafter is not None else 1

    def _drafting(self, entries: Seq[DeviceRoundEntry]) -> Method | None:
        """Return the method whose draft on the device drafts in a round; None if there is none."""
        methods = [e.sequence.method for e in entries if e.depth and e.sequence.method in self._drafts]
        return methods[0] if methods else None

    def _keep_result(self, entry: DeviceRoundEntry, result: DeviceRoundResult, depth: int) -> RoundResult:
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
        tree = TokenTree.chain(result.drafted) if result.drafted and not len(entry.tree) else entry.tree
        sequence.counts.count(len(tree), len(tree), len(path))
        drafter = entry.drafter
        if entry.depth and isinstance(drafter, DraftModel):
            # The draft has read the root and all of its tokens but the last one of the round.
            drafter.runner.keep(slot, root, path[: depth - 1])
            if len(result.drafted) < entry.depth:
                drafter.mark_not_finite(sequence)
        elif entry.depth and isinstance(drafter, EagleDrafter):
            drafter.read_on_device(sequence, finite=len(result.drafted) == entry.depth)
        elif drafter is not None:
            drafter.commit(sequence, tree, path)
        if slot in self._length_policies:
            self._length_policies[slot].update(tree, path)
        return RoundResult(result.tokens, entry.depth + 1)
