"""Calibration: measures the costs of passes on this machine, in one or two seconds for any model size."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace

from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape, TreeWidths, chain, shape_size
from specclient_local.drafting.policy_selection import DEFAULT_DRAFT_LENGTH
from specclient_local.drafting.round_costs import (
    RecordedCosts,
    RoundCosts,
    costs_per_row_count,
    interpolate_costs,
)
from specclient_local.drafting.tree_growth import GROWN_TREE_BREADTH
from specclient_local.loading.timing_plan import LONGEST, PLANS, pass_clock
from specclient_local.model.model_runner import ModelRunner
from specclient_local.model.pass_input import SlotInput
from specclient_local.request.params import MAX_DRAFT_LENGTH, Method, SamplingParams
from specclient_local.request.sequence import RandomStream, Sequence
from specclient_local.request.token_tree import ROOT, TokenTree

_BATCH = 8
"""Sequences of the largest batch that is timed; costs of larger batches are extrapolated."""

_NEAR = 64
_FAR = 2048
"""Cached positions at the two points in the context at which passes are timed."""

_ROUNDS = 12
"""Rounds timed to measure their overhead beyond their passes."""

_SLOW_S = 0.02
"""Seconds of a pass from which that overhead is negligible and not measured."""


class Calibration:
    """Measures a target's passes on construction, and the costs of its drafts on request.

    Args:
        target: must have all slots free.
        slots: number of sequences that may run at once.
        clock: returns seconds; by default CPU time where one thread computes, else wall-clock time.

    Attributes:
        target: costs of rounds whose draft costs nothing.
    """

    def __init__(self, target: ModelRunner, slots: int, clock: Callable[[], float] | None = None) -> None:
        self._runner, self._clock = target, clock or pass_clock(target.device)
        self._batch, self._vocab = min(slots, _BATCH), target.config.vocab_size
        self._time_passes([(1, 1)], _NEAR, 0)  # warm-up
        (step,) = self._time_passes([(1, 1)], _NEAR, 0)
        self._plan = next((plan for plan in PLANS if plan.fits(step, self._batch)), PLANS[-1])
        near = min(_NEAR, max(0, target.context - LONGEST))
        alone = self._seconds(1, self._plan.rows, near)
        self._unit = alone[0]
        full = self._seconds(self._batch, self._plan.full, near) if self._batch > 1 else alone
        verify = tuple(s / self._unit for s in alone)
        if not full:
            full = [
                self._unit * interpolate_costs(verify, self._batch * k - 1) for k in range(1, len(verify) + 1)
            ]
        cost = RoundCosts(0.0, verify, self._batch, 0.0, tuple(s / self._unit for s in full), context=near)
        far = min(_FAR, target.context - LONGEST)
        if far >= 4 * _NEAR and self._plan.far:
            later = self._seconds(1, (1, LONGEST), far)
            cost = replace(cost, far=self._later(cost, 0.0, tuple(s / self._unit for s in later), far))
        if step <= _SLOW_S and target.device.type == "cpu":  # otherwise the overhead is negligible
            trees = 0.0 if target.recurrent else self._tree_overhead()
            cost = replace(cost, overhead=self._round_overhead(), tree_overhead=trees)
        self.target = cost

    def draft(self, draft: ModelRunner) -> RoundCosts:
        """Return the costs of rounds with a draft model, which must have all slots free."""
        known = self.target
        drafter = DraftModel(draft, self._vocab, sharing="none")
        alone, steps = self._draft_step(draft, known.context), DEFAULT_DRAFT_LENGTH
        full = self._proposal(drafter, self._batch, chain(steps)) / steps if self._plan.full else 0.0
        most = MAX_DRAFT_LENGTH + 1
        row, level, drawn = self._tree_costs(drafter, alone)
        cost = replace(
            known,
            draft=alone,
            # A batch never costs less than one sequence; a smaller measurement is noise.
            full_draft=max(full, alone + (0.0 if full else (self._batch - 1) * row)),
            row=row,
            level=level,
            drawn=drawn,
            verify=known.verify[:most],
            full_verify=known.full_verify[:most],
        )
        if known.far is None:
            return cost
        later = max(alone, self._draft_step(draft, known.far.context))
        return replace(cost, far=self._later(cost, later, known.far.verify, known.far.context))

    def drafter(self, drafter: Drafter, depth: int) -> RoundCosts:
        """Return the costs of rounds with a drafter that reads the target's hidden states.

        Args:
            drafter: the drafter to time; all slots must be free.
            depth: most levels of its trees.
        """
        known, steps = self.target, min(DEFAULT_DRAFT_LENGTH, depth)
        alone = self._proposal(drafter, 1, chain(steps)) / steps
        full = self._proposal(drafter, self._batch, chain(steps)) / steps
        row, level, drawn = self._tree_costs(drafter, alone)
        return replace(
            known,
            draft=alone,
            full_draft=max(alone, full),
            row=row,
            level=level,
            drawn=drawn,
            verify=known.verify[: depth + 1],
            full_verify=known.full_verify[: depth + 1],
        )

    def _tree_costs(self, drafter: Drafter, alone: float) -> tuple[float, float, float]:
        """Return the additional costs of a row, a level and a sampled token; see :class:`RoundCosts`.

        Args:
            drafter: the drafter to time; all slots must be free.
            alone: cost of one step of a greedy chain.
        """
        narrow, wide = (self._proposal(drafter, 1, (width, 1)) for width in (2, GROWN_TREE_BREADTH))
        row = max(0.0, wide - narrow) / (GROWN_TREE_BREADTH - 2)
        drawn = self._proposal(drafter, 1, chain(2), temperature=1.0)
        return row, max(0.0, (narrow - row) / 2 - alone), max(0.0, drawn / 2 - alone)

    def _proposal(self, drafter: Drafter, batch: int, shape: TreeWidths, temperature: float = 0.0) -> float:
        """Return the cost of proposing trees of a shape for ``batch`` sequences, after a pass of the target.

        0 where the context is too short for the shape.
        """
        room = self._runner.context - shape_size(shape) - 1
        if room < 0:
            return 0.0
        turns = min(self._plan.turns, room)
        at = min(self.target.context, room - turns)
        sequences = [_request(slot, at + 1, temperature) for slot in range(batch)]
        taken: list[float] = []
        for slot in range(batch):
            self._runner.assume_length(slot, at)
        while not all(drafter.begin(sequence) for sequence in sequences):
            pass
        for _ in range(turns + 1):
            self._runner.score_all([SlotInput(slot, [0]) for slot in range(batch)])
            for slot in range(batch):
                self._runner.truncate(slot, len(sequences[0].tokens) - 1)
            begun = self._clock()
            trees = drafter.propose(sequences, [shape] * batch)
            taken.append(self._clock() - begun)
            for sequence, tree in zip(sequences, trees, strict=True):
                drafter.commit(sequence, tree, [])
                sequence.tokens.append(0)
                self._runner.assume_length(sequence.cache_slot, len(sequence.tokens) - 1)
        for sequence in sequences:
            drafter.end(sequence)
            self._runner.truncate(sequence.cache_slot, 0)
        return min(taken[1:] or taken) / self._unit

    def _round_overhead(self) -> float:
        """Return the cost per request of a plain round beyond its pass.

        The same pass is timed alone after each round, so that other load on the machine affects both alike.
        """
        speculator, runner, clock = Speculator(self._runner), self._runner, self._clock
        sequence, taken = _request(0, 1), list[float]()
        for _ in range(min(_ROUNDS, runner.context - 1)):
            place, root = runner.length(0), sequence.tokens[-1:]
            begun = clock()
            (won,) = speculator.round([sequence])
            ended = clock()
            runner.truncate(0, place)
            again = clock()
            runner.score_all([SlotInput(0, root)])
            taken.append(ended - begun - (clock() - again))
            if isinstance(won, Exception):
                break  # a request to this model will raise it
            sequence.take(won.tokens[0])
        runner.truncate(0, 0)
        return max(0.0, statistics.median(taken) / self._unit) if taken else 0.0

    def _tree_overhead(self) -> float:
        """Return the cost of a round that verifies a tree beyond that of a chain of the same size."""
        runner, clock = self._runner, self._clock
        chained, branched = TokenTree.chain([0] * 4), TokenTree.chain([0, 0])
        branched.add(ROOT, 1)
        branched.add(2, 0)
        if runner.context < _NEAR + 2 * shape_size(chain(4)):
            return 0.0
        drafter = _ScriptedDrafter()
        speculator, taken = Speculator(runner, {"draft": drafter}), list[float]()
        for turn in range(_ROUNDS):
            drafter.tree = (chained, branched)[turn % 2]
            sequence = _request(0, 1, method="draft")
            speculator.prefill(sequence)
            begun = clock()
            speculator.round([sequence])
            taken.append(clock() - begun)
            speculator.end(sequence)
            runner.truncate(0, 0)
        differences = [tree - chained_s for chained_s, tree in zip(taken[::2], taken[1::2], strict=True)]
        return max(0.0, statistics.median(differences) / self._unit)

    def _seconds(self, batch: int, rows: Seq[int], at: int) -> list[float]:
        """Return the seconds of passes over 1, 2, … rows per sequence, interpolated between the timed counts.

        Row counts beyond the context are left out.
        """
        rows = [r for r in rows if r <= self._runner.context]
        if not rows:
            return []
        shapes = [(batch, r) for r in rows]
        return costs_per_row_count(rows, self._time_passes(shapes, at, self._plan.turns))

    def _time_passes(self, shapes: Seq[tuple[int, int]], at: int, repeats: int) -> list[float]:
        """Return the minimum seconds of passes by shape; arguments as for ``time_passes`` of a runner."""
        return self._runner.time_passes(shapes, at=at, repeats=repeats, clock=self._clock)

    @staticmethod
    def _later(near: RoundCosts, draft: float, verify: tuple[float, ...], context: int) -> RoundCosts:
        """Return the costs further into the context, where each sequence's attention takes longer."""
        verify = tuple(max(a, b) for a, b in zip(near.verify, verify, strict=False))
        full = (
            there + near.slots * (later - alone)
            for there, later, alone in zip(near.full_verify, verify, near.verify, strict=False)
        )
        more = near.slots * (draft - near.draft)
        return replace(
            near,
            draft=draft,
            verify=verify,
            full_draft=near.full_draft + more,
            full_verify=tuple(full),
            recorded=tuple(
                RecordedCosts(
                    each.slots,
                    each.draft + each.slots * (draft - near.draft),
                    tuple(
                        there + each.slots * (later - alone)
                        for there, later, alone in zip(each.verify, verify, near.verify, strict=False)
                    ),
                )
                for each in near.recorded
            ),
            context=context,
        )

    def _draft_step(self, draft: ModelRunner, at: int) -> float:
        """Return the cost of a draft step of one sequence.

        Each measurement follows a pass of the target, as in a round, since that pass evicts the draft's
        weights from the CPU caches.
        """
        steps = min(DEFAULT_DRAFT_LENGTH, draft.context)
        at = min(at, draft.context - steps)
        taken: list[float] = []
        for _ in range(self._plan.turns + 1):
            self._runner.score_all([SlotInput(0, [0])])
            draft.assume_length(0, at)
            begun = self._clock()
            if draft.draft_chains([SlotInput(0, [0])], [steps], draft.config.vocab_size) is None:
                for _ in range(steps):
                    draft.score_all([SlotInput(0, [0])])
            taken.append((self._clock() - begun) / steps)
            self._runner.truncate(0, 0)
            draft.truncate(0, 0)
        return min(taken[1:] or taken) / self._unit


class _ScriptedDrafter(Drafter):
    """Proposes a fixed tree.

    Attributes:
        tree: the proposal for every sequence.
    """

    tree = TokenTree()

    def begin(self, sequence: Sequence) -> bool:  # noqa: ARG002
        """Return True; no preparation is needed."""
        return True

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:  # noqa: ARG002
        """Return the tree for each sequence."""
        return [self.tree for _ in sequences]

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Do nothing; there is no state."""

    def end(self, sequence: Sequence) -> None:
        """Do nothing; there is no state."""


def _request(slot: int, tokens: int, temperature: float = 0.0, method: Method = "plain") -> Sequence:
    """Return a sequence with ``tokens`` tokens that holds a slot."""
    params = SamplingParams(temperature=temperature, method=method, draft_length=MAX_DRAFT_LENGTH)
    number, dice = slot, RandomStream(0)
    return Sequence(number, [0] * tokens, tokens, params, method, _NEAR, frozenset(), dice, slot=slot)
