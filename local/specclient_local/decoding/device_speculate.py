"""Turn running sequences into their next tokens as a ``Speculator`` does, common rounds on the device alone.

A round whose requests draft chains, or nothing, and shape their logits by temperature, top-p and top-k at
most is one recorded run: the host hears of it once, when it is over. All others take the general path, over
the same caches. What a request gets has the same law either way, and a seed the same random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from specclient.errors import EngineError
from specclient_local.decoding.speculate import RoundOutcome, RoundResult, Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape
from specclient_local.drafting.ngram import NgramDrafter
from specclient_local.drafting.prediction import PredictionDrafter
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

_NEUTRAL = SamplingParams()
_BEYOND = (
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "json_schema",
    "regex",
    "grammar",
    "logprobs",
    "prompt_logprobs",
    "draft_tree",
)
"""Parameters that a round on the device knows nothing of; a request takes part that leaves them alone."""


@dataclass(slots=True)
class _DeviceRoundEntry:
    """A sequence's part of a round on the device.

    Attributes:
        depth: how far to draft.
        tree: what a drafter without a model guesses; empty where the model is to guess.
    """

    sequence: Sequence
    depth: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class DeviceSpeculator(Speculator):
    """A :class:`Speculator` of a target with static shapes.

    Sampled requests with a seed have rounds to themselves in float32: the last bits of a batch's logits
    depend on its shape, so in company a seed could, once in a great while, give another answer. In half
    precision nothing of the kind is promised, and all share.

    Args:
        target, drafters, costs, share: see :class:`Speculator`. A draft model drafts on the device if
            it is a :class:`StaticRunner` on the target's own.
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
        """Win at least one token for each sequence; see :meth:`Speculator.round`."""
        common: list[Sequence] = []
        others: list[Sequence] = []
        for sequence in sequences:
            (common if self._is_common(sequence) else others).append(sequence)
        outcomes: dict[int, RoundOutcome] = {}
        for group in self._groups(self._turns(common, len(sequences))):
            try:
                outcomes.update(self._together(group))
            except Exception as error:  # noqa: BLE001 - those of other rounds go on
                outcomes.update((turn.sequence.id, error) for turn in group)
        for company in self._companies(others):
            try:
                outcomes.update(zip((s.id for s in company), super().round(company), strict=True))
            except Exception as error:  # noqa: BLE001 - as above
                outcomes.update((sequence.id, error) for sequence in company)
        return [outcomes[sequence.id] for sequence in sequences]

    def _is_common(self, sequence: Sequence) -> bool:
        """Return whether a sequence's next round can be one on the device."""
        drafter, params = self._drafter_of(sequence), sequence.params
        return (
            sequence.rules is None
            and all(getattr(params, name) == getattr(_NEUTRAL, name) for name in _BEYOND)
            and self.target.length(sequence.granted) == len(sequence.tokens) - 1
            and (
                drafter is None
                or isinstance(drafter, PredictionDrafter | NgramDrafter)
                or (self._model is not None and drafter is self.drafters.get("draft"))
            )
        )

    def _turns(self, sequences: Seq[Sequence], running: int) -> list[_DeviceRoundEntry]:
        """Decide how far each sequence drafts, and let drafters without a model do so."""
        turns = {sequence.id: _DeviceRoundEntry(sequence) for sequence in sequences}
        able = [s for s in sequences if self._drafter_of(s) is not None and s.remaining > 1]
        shapes = {s.id: self._shape(s, len(able), running - len(able)) for s in able}
        for method, drafter in self.drafters.items():
            own = [s for s in able if s.method == method and len(shapes[s.id])]
            if own and not isinstance(drafter, DraftModel):
                trees = drafter.propose(own, [shapes[s.id] for s in own])
                for sequence, tree in zip(own, trees, strict=True):
                    turns[sequence.id].tree, turns[sequence.id].depth = tree, len(tree)
            elif own:
                for sequence in own:
                    turns[sequence.id].depth = self._reach(sequence, shapes[sequence.id])
        return list(turns.values())

    def _reach(self, sequence: Sequence, shape: DraftShape) -> int:
        """Return how far the draft model drafts; what it has not read but should have is read now."""
        assert self._model is not None
        left = self._model.context - len(sequence.tokens) + 1
        depth = max(0, min(len(shape), left))
        done, whole = self._model.length(sequence.granted), len(sequence.tokens) - 2
        if depth and done < whole:
            vocab = self._model.config.vocab_size
            unread = [token if token < vocab else 0 for token in sequence.tokens[done:whole]]
            self._model.prefill(sequence.granted, unread)
        return depth

    def _companies(self, sequences: Seq[Sequence]) -> Iterator[list[Sequence]]:
        """Share out sequences over rounds; whose answer a seed is to fix has its own."""
        together = [s for s in sequences if not (self._exact and s.reproducible)]
        if together:
            yield together
        yield from ([s] for s in sequences if self._exact and s.reproducible)

    def _groups(self, turns: Seq[_DeviceRoundEntry]) -> Iterator[list[_DeviceRoundEntry]]:
        """Share out turns over rounds no larger than the device's largest."""
        own = {turn.sequence.id: turn for turn in turns}
        most = self._rounds.target.most_slots
        for company in self._companies([turn.sequence for turn in turns]):
            for begin in range(0, len(company), most):
                yield [own[sequence.id] for sequence in company[begin : begin + most]]

    def _together(self, turns: Seq[_DeviceRoundEntry]) -> dict[int, RoundOutcome]:
        """Do one round for some sequences."""
        deepest = max(turn.depth for turn in turns)
        gained = self._rounds.run([_ask(turn, deepest) for turn in turns])
        outcomes: dict[int, RoundOutcome] = {}
        for turn, own in zip(turns, gained, strict=True):
            try:
                outcomes[turn.sequence.id] = self._take(turn, own, deepest)
            except Exception as error:  # noqa: BLE001 - the others' rounds go on
                outcomes[turn.sequence.id] = error
        return outcomes

    def _take(self, turn: _DeviceRoundEntry, gained: DeviceRoundResult, deepest: int) -> RoundResult:
        """Keep what a sequence won."""
        sequence, slot = turn.sequence, turn.sequence.granted
        if not gained.sound:
            raise EngineError(NOT_FINITE)
        root, path = len(sequence.tokens) - 1, list(range(len(gained.tokens) - 1))
        sequence.dice.skip(gained.used)
        self.target.keep(slot, root, path)
        tree = turn.tree if len(turn.tree) else TokenTree.chain(gained.guesses)
        sequence.tally.count(len(tree), len(tree), len(path))
        drafter = self._drafter_of(sequence)
        if turn.depth and isinstance(drafter, DraftModel):
            # It has read the root and its own guesses but the last one of the round.
            drafter.runner.keep(slot, root, path[: deepest - 1])
            if len(gained.guesses) < turn.depth:
                drafter.distrust(sequence)
        elif drafter is not None:
            drafter.commit(sequence, tree, path)
        if slot in self._lengths:
            self._lengths[slot].update(tree, path)
        return RoundResult(gained.tokens, turn.depth + 1)


def _ask(turn: _DeviceRoundEntry, deepest: int) -> DeviceRoundRequest:
    sequence = turn.sequence
    sampled = sequence.params.temperature > 0.0
    return DeviceRoundRequest(
        slot=sequence.granted,
        tokens=sequence.tokens[-2:],
        start=len(sequence.tokens) - 1,
        depth=turn.depth,
        params=sequence.params,
        given=turn.tree.tokens or None,
        uniform=sequence.dice.ahead(2 * deepest + 1) if sampled else (),
    )
