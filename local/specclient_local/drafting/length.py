"""Turn measured acceptance and measured cost into how many tokens to draft next.

Leviathan et al. (arXiv 2211.17192 §3.5): with each draft token accepted with chance α, a round wins
(1 − α^(K+1)) / (1 − α) tokens on average, for K draft passes and one verification. Their cost of a
verification is that of one plain step; here it is what K + 1 rows were measured to cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from specclient_local.config import MAX_DRAFT_LENGTH, MAX_PREDICTED_LENGTH

_DECAY = 0.98
_PROBE_EVERY = 16
_PROBE_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """What passes cost, in plain steps of the target.

    As measured early in a context. Far into a long one attention takes a growing share of both models'
    passes; the ratios drift with it and are not measured again.

    Attributes:
        draft: one step of the draft.
        verify: for K = 0, 1, …, the target's pass over K + 1 rows; its length bounds K.
    """

    draft: float
    verify: tuple[float, ...]


def costs(draft: float, rows: Sequence[int], seconds: Sequence[float]) -> Costs:
    """Turn measured seconds into :class:`Costs`, interpolating between the row counts measured.

    More rows never cost less: where a measurement says so it is noise, and the largest so far stands.

    Args:
        draft: seconds of a draft step.
        rows: ascending row counts, the first being 1; the last bounds the draft length.
        seconds: of the target's pass over each.
    """
    seconds = list(accumulate(seconds, max))
    verify: list[float] = []
    for count in range(1, rows[-1] + 1):
        right = next(i for i, r in enumerate(rows) if r >= count)
        left = max(0, right - 1)
        span = rows[right] - rows[left]
        share = (count - rows[left]) / span if span else 0.0
        verify.append((seconds[left] + share * (seconds[right] - seconds[left])) / seconds[0])
    return Costs(draft / seconds[0], tuple(verify))


def expected_tokens(alpha: float, length: int) -> float:
    """Return the mean number of tokens a round of K = ``length`` wins, the target's own included."""
    if alpha >= 1.0:
        return length + 1.0
    return (1.0 - alpha ** (length + 1)) / (1.0 - alpha)


def best_length(alpha: float, cost: Costs) -> int:
    """Return the K with most tokens per cost; 0 where drafting loses. The shorter of equal ones."""
    speed = [
        expected_tokens(alpha, k) / (k * cost.draft + verify)
        for k, verify in enumerate(cost.verify[: MAX_DRAFT_LENGTH + 1])
    ]
    return speed.index(max(speed))


class RunLength:
    """How far to draft where drafts cost nothing and are right or wrong for stretches at a time.

    A draft kept whole is followed by one twice as long, a refused one by a short one. Nothing measured
    enters, so a seeded request draws the same on every machine.
    """

    def __init__(self) -> None:
        self._next = 7

    def next(self) -> int:
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

    Its state is the request's own, so what a request draws does not depend on the others.

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

    def next(self) -> int:
        """Return how many tokens to draft; a request that stopped drafting tries again now and then."""
        best = best_length(self.alpha, self._cost)
        if best:
            return best
        self._idle += 1
        return _PROBE_LENGTH if self._idle % _PROBE_EVERY == 0 else 0

    def update(self, drafted: int, accepted: int) -> None:
        """Learn from a round in which ``drafted`` tokens deep were tried and ``accepted`` kept."""
        if drafted:
            self._accepted = self._accepted * _DECAY + accepted
            self._tried = self._tried * _DECAY + accepted + (accepted < drafted)
