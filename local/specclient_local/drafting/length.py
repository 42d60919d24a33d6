"""Turn measured acceptance and measured cost into how many tokens to draft next.

Leviathan et al. (arXiv 2211.17192 §3.5): with each draft token accepted with chance α, a round wins
(1 − α^(K+1)) / (1 − α) tokens on average, for K draft passes and one verification. Their cost of a
verification is that of one plain step; here it is what K + 1 rows were measured to cost, alone and in the
company of others: where several requests share a pass its rows are what is paid for, and drafts pay less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from specclient_local.params import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH

_DECAY = 0.98
_PROBE_EVERY = 16
_PROBE_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """What passes cost, in plain steps of the target for one sequence.

    As measured early in a context. Far into a long one attention takes a growing share of both models'
    passes; the ratios drift with it and are not measured again.

    Attributes:
        draft: one step of the draft for one sequence.
        verify: for K = 0, 1, …, the target's pass over K + 1 rows of one sequence; its length bounds K.
        slots: sequences of the batch measured beside it; 1 where only one can run.
        full_draft, full_verify: the same for that batch, each sequence having so many rows.
    """

    draft: float
    verify: tuple[float, ...]
    slots: int = 1
    full_draft: float = 0.0
    full_verify: tuple[float, ...] = ()

    def round(self, length: int, drafting: int = 1, others: int = 0) -> float:
        """Return what a round costs in which some sequences draft ``length`` tokens and others none."""
        sequences = drafting + others
        extra = length * drafting / sequences  # rows beyond the root, on average
        return length * self._between(self.draft, self.full_draft, drafting) + self._between(
            _at(self.verify, extra), _at(self.full_verify, extra), sequences
        )

    def _between(self, alone: float, full: float, sequences: int) -> float:
        """Interpolate between one sequence and the batch measured, or extrapolate beyond it."""
        return alone if self.slots < 2 else alone + (full - alone) * (sequences - 1) / (self.slots - 1)


def costs(
    draft: Sequence[float], rows: Sequence[int], seconds: Sequence[Sequence[float]], slots: int = 1
) -> Costs:
    """Turn measured seconds into :class:`Costs`, interpolating between the row counts measured.

    More rows never cost less: where a measurement says so it is noise, and the largest so far stands.

    Args:
        draft: seconds of a draft step, for one sequence and for a batch.
        rows: ascending row counts of each sequence, the first being 1; the last bounds the draft length.
        seconds: of the target's pass over each, for one sequence and for a batch.
        slots: sequences of that batch.
    """
    unit = seconds[0][0]
    verify = [tuple(taken / unit for taken in _each_count(rows, list(accumulate(s, max)))) for s in seconds]
    return Costs(draft[0] / unit, verify[0], slots, draft[-1] / unit, verify[-1])


def _each_count(rows: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Return the seconds of 1, 2, … rows."""
    found: list[float] = []
    for count in range(1, rows[-1] + 1):
        right = next(i for i, r in enumerate(rows) if r >= count)
        left = max(0, right - 1)
        span = rows[right] - rows[left]
        share = (count - rows[left]) / span if span else 0.0
        found.append(seconds[left] + share * (seconds[right] - seconds[left]))
    return found


def _at(table: Sequence[float], place: float) -> float:
    """Return a table's value between its entries; 0 of an empty one."""
    if not table:
        return 0.0
    low = min(int(place), len(table) - 1)
    high = min(low + 1, len(table) - 1)
    return table[low] + (place - low) * (table[high] - table[low])


def expected_tokens(alpha: float, length: int) -> float:
    """Return the mean number of tokens a round of K = ``length`` wins, the target's own included."""
    if alpha >= 1.0:
        return length + 1.0
    return (1.0 - alpha ** (length + 1)) / (1.0 - alpha)


def best_length(alpha: float, cost: Costs, drafting: int = 1, others: int = 0) -> int:
    """Return the K with most tokens per cost; 0 where drafting loses. The shorter of equal ones.

    Args:
        alpha: chance that a draft token is accepted.
        cost: as measured at load.
        drafting: sequences of the round that may draft, taken to be alike.
        others: sequences of the round that draft nothing.
    """
    speed = [
        (drafting * expected_tokens(alpha, k) + others) / cost.round(k, drafting, others)
        for k in range(min(len(cost.verify), MAX_DRAFT_LENGTH + 1))
    ]
    return speed.index(max(speed))


class RunLength:
    """How far to draft where drafts cost nothing and are right or wrong for stretches at a time.

    A draft kept whole is followed by one twice as long, a refused one by a short one. Nothing measured
    enters, so a seeded request draws the same on every machine.
    """

    def __init__(self) -> None:
        self._next = 7

    def next(self, drafting: int = 1, others: int = 0) -> int:  # noqa: ARG002 - whatever the load
        """Return how many tokens to draft."""
        return self._next

    def update(self, drafted: int, accepted: int) -> None:
        """Learn from a round in which ``drafted`` tokens deep were tried and ``accepted`` kept."""
        if drafted and accepted == drafted:
            self._next = min(2 * self._next + 1, MAX_PREDICTED_LENGTH)
        elif drafted:
            self._next = 3 if accepted else 1


class DraftLength:
    """One request's estimate of α: accepted tokens over accepted tokens and refusals, older rounds fading.

    The estimate is the request's own; how far it drafts depends on the others, too.

    Args:
        cost: as measured at load.
        prior: α before anything is known, worth ``weight`` observations.
    """

    def __init__(self, cost: Costs, prior: float = 0.7, weight: float = 4.0) -> None:
        self._cost = cost
        self._accepted = prior * weight
        self._tried = weight
        self._idle = 0

    @property
    def alpha(self) -> float:
        """The estimate."""
        return self._accepted / self._tried

    def next(self, drafting: int = 1, others: int = 0) -> int:
        """Return how many tokens to draft in a round of so many sequences; see :func:`best_length`.

        A request whose drafts are refused too often to draft even when alone tries again now and then;
        one that is kept from it by the others' load waits until that falls.
        """
        best = best_length(self.alpha, self._cost, drafting, others)
        if best or best_length(self.alpha, self._cost):
            return best
        self._idle += 1
        return _PROBE_LENGTH if self._idle % _PROBE_EVERY == 0 else 0

    def update(self, drafted: int, accepted: int) -> None:
        """Learn from a round in which ``drafted`` tokens deep were tried and ``accepted`` kept."""
        if drafted:
            self._accepted = self._accepted * _DECAY + accepted
            self._tried = self._tried * _DECAY + accepted + (accepted < drafted)
