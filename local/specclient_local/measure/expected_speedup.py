"""The acceptance probability α of measured rounds, and the speed-up expected from α and the costs of passes.

Leviathan et al. (arXiv 2211.17192, §3): if each draft token is accepted with probability α, independently of
the others, a round of K drafted tokens yields (1 − α^(K+1)) / (1 − α) tokens on average. It costs K draft
passes of c plain steps each, and one verification, assumed to cost one plain step (Theorem 3.8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specclient_local.drafting.best_shape import expected_tokens
from specclient_local.measure.timed_runs import TimedRun


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """Counts of accepted draft tokens by position, for drafts of one length.

    Attributes:
        tried: number of rounds whose draft reaches position i and whose tokens before i were all accepted.
        kept: number of these rounds in which the token at position i was accepted, too.
        rounds: number of rounds.
    """

    tried: tuple[int, ...]
    kept: tuple[int, ...]
    rounds: int

    @property
    def alpha(self) -> float | None:
        """α, the probability that a token is accepted given that all before it were: kept over tried.

        The maximum-likelihood estimate if α is the same at all positions. None where nothing was drafted.
        """
        return sum(self.kept) / sum(self.tried) if any(self.tried) else None

    @property
    def by_position(self) -> tuple[float, ...]:
        """The acceptance rate at each position that was tried."""
        return tuple(kept / tried for kept, tried in zip(self.kept, self.tried, strict=True) if tried)

    @property
    def mean_accepted_length(self) -> float:
        """Mean tokens per round, including the target's own."""
        return 1 + sum(self.kept) / self.rounds if self.rounds else 1.0


def acceptance(runs: Iterable[TimedRun], length: int, limit: int) -> PositionAcceptance:
    """Count accepted tokens by position, for drafts of one fixed length.

    Args:
        runs: runs that drafted chains of ``length`` tokens, shorter only near an answer's end.
        length: K, at least 1.
        limit: most new tokens per answer; a draft never exceeds it.
    """
    tried, kept, rounds = [0] * length, [0] * length, 0
    for answer in (answer for run in runs for answer in run.answers):
        done = 0
        complete = answer.generation.finish_reason == "length"
        # An end token truncates its round, which hides how many of that draft's tokens were accepted.
        for accepted in answer.rounds if complete else answer.rounds[:-1]:
            reach = min(length, limit - done - 1)
            for i in range(min(accepted + 1, reach)):
                tried[i] += 1
                kept[i] += i < accepted
            done += accepted + 1
            rounds += 1
    return PositionAcceptance(tuple(tried), tuple(kept), rounds)


def speed_up(alpha: float, length: float, cost: float, verification: float = 1.0) -> float:
    """Return the expected speed-up over plain decoding of rounds with K = ``length`` drafted tokens.

    Args:
        alpha: probability that a draft token is accepted.
        length: K.
        cost: c, the cost of one draft pass in plain steps.
        verification: cost of the target's pass over K + 1 rows in plain steps; 1 is the closed form.
    """
    return expected_tokens(alpha, length) / (length * cost + verification)


def implied_alpha(tokens: float, length: float) -> float:
    """Return the α at which rounds of ``length`` drafted tokens yield ``tokens`` on average; by bisection.

    An estimate for drafts of varying length, where ``length`` is their mean.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, length) < tokens else (low, middle)
    return (low + high) / 2
