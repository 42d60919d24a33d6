"""Calibration of a target with static shapes: times the rounds that will run on the device, not passes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace

from specclient_local.decoding.device_round_entry import device_draft
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter
from specclient_local.drafting.policy_selection import DEFAULT_DRAFT_LENGTH
from specclient_local.drafting.round_costs import RecordedCosts, RoundCosts, costs_per_row_count
from specclient_local.loading.calibration import Calibration
from specclient_local.model.cuda_graphs.device_drafts import DeviceDraft
from specclient_local.model.cuda_graphs.device_rounds import DeviceRounds
from specclient_local.model.cuda_graphs.round_layout import DeviceRoundRequest
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.model.model_runner import ModelRunner
from specclient_local.request.params import MAX_DRAFT_LENGTH, SamplingParams

_RECORDED_ROWS = (1, 3, 5, MAX_DRAFT_LENGTH + 1)
"""Row counts of the rounds that are timed for each number of slots; those between them are interpolated."""

_TURNS = 5
"""Timed rounds of each shape, after one that records it."""

_DRAFT = "timed"


class DeviceCalibration(Calibration):
    """Measures whole rounds: their drafts, verification and sampling, and the host's work around them.

    Args:
        target: must have all slots free.
        slots: number of sequences that may run at once.
        clock: returns seconds.
    """

    def __init__(self, target: StaticRunner, slots: int, clock: Callable[[], float] | None = None) -> None:
        self._target = target
        self._rounds = DeviceRounds(target)
        super().__init__(target, slots, clock)
        known = replace(self.target, recorded=self._recorded())
        if known.far is not None:
            known = replace(known, far=self._later(known, 0.0, known.far.verify, known.far.context))
        self.target = known

    def draft(self, draft: ModelRunner) -> RoundCosts:
        """Return the costs of rounds with a draft model, which must have all slots free."""
        own = device_draft(DraftModel(draft, self._target.config.vocab_size, sharing="none"), self._target)
        return super().draft(draft) if own is None else self._device_costs(own, MAX_DRAFT_LENGTH)

    def drafter(self, drafter: Drafter, depth: int) -> RoundCosts:
        """Return the costs of rounds with a drafter that reads the target's hidden states."""
        own = device_draft(drafter, self._target)
        return super().drafter(drafter, depth) if own is None else self._device_costs(own, depth)

    def _recorded(self) -> tuple[RecordedCosts, ...]:
        """Return the costs of rounds without a draft, by the numbers of slots that are recorded."""
        known, found = self.target, list[RecordedCosts]()
        rows = [count for count in _RECORDED_ROWS if count <= self._target.context]
        for slots in self._target.batch_sizes:
            seconds = self._time_passes([(slots, count) for count in rows], known.context, _TURNS)
            verify = tuple(each / self._unit for each in costs_per_row_count(rows, seconds))
            found.append(RecordedCosts(slots, 0.0, verify))
        return tuple(found)

    def _time_passes(self, shapes: Seq[tuple[int, int]], at: int, repeats: int) -> list[float]:
        """Return the median seconds of rounds that verify known tokens, by (slots, rows)."""
        at = max(1, min(at, self._target.context - max(rows for _, rows in shapes)))
        return [self._seconds_a_round(self._rounds, *shape, at, repeats) for shape in shapes]

    def _device_costs(self, draft: DeviceDraft, depth: int) -> RoundCosts:
        """Return the costs of rounds with a draft on the device of at most ``depth`` tokens."""
        known, steps = self.target, min(DEFAULT_DRAFT_LENGTH, depth)
        rounds = DeviceRounds(self._target, {_DRAFT: draft})
        at = max(1, min(known.context, self._target.context - steps - 1))

        def step(slots: int, temperature: float = 0.0) -> float:
            shape = slots, steps + 1, at, _TURNS
            drafted = self._seconds_a_round(rounds, *shape, drafter=_DRAFT, heat=temperature)
            given = self._seconds_a_round(self._rounds, *shape)
            return max(0.0, drafted - given) / steps / self._unit

        alone = step(1)
        cost = replace(
            known,
            draft=alone,
            full_draft=max(alone, step(self._batch)) if self._batch > 1 else alone,
            drawn=max(0.0, step(1, temperature=1.0) - alone),
            verify=known.verify[: depth + 1],
            full_verify=known.full_verify[: depth + 1],
            recorded=tuple(
                RecordedCosts(each.slots, max(alone, step(each.slots)), each.verify[: depth + 1])
                for each in known.recorded
            ),
        )
        if known.far is None:
            return cost
        return replace(cost, far=self._later(cost, alone, known.far.verify, known.far.context))

    def _seconds_a_round(
        self,
        rounds: DeviceRounds,
        slots: int,
        rows: int,
        at: int,
        turns: int,
        *,
        drafter: str | None = None,
        heat: float = 0.0,
    ) -> float:
        """Return the median seconds of a round with ``rows - 1`` drafted tokens for each of ``slots``."""
        depth = rows - 1
        params = SamplingParams(temperature=heat)
        given = None if drafter is not None else [0] * depth
        requests = [
            DeviceRoundRequest(slot, [0] * rows, at, depth, params, given, [0.5] * (2 * depth + 1))
            for slot in range(slots)
        ]
        taken: list[float] = []
        for _ in range(turns + 1):
            begun = self._clock()
            rounds.run(requests, drafter)
            taken.append(self._clock() - begun)
        return statistics.median(taken[1:] or taken)
