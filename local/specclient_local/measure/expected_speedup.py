"""Turn rounds into an acceptance chance α, and α with the costs of passes into the speed-up to expect.

Leviathan et al. (arXiv 2211.17192, §3): if each draft token is accepted with chance α independently of the
others, a round of K drafts wins (1 − α^(K+1)) / (1 − α) tokens, and costs K draft passes of c plain steps
each and one verification, taken to cost a plain step (Theorem 3.8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specclient_local.measure.timed_runs import TimedRun


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """How drafts of one length fared, by position.

    Attributes:
        tried: rounds in which the draft reached position i and all before it were kept.
        kept: those in which the token at position i was kept, too.
        rounds: all of them.
    """

    tried: tuple[int, ...]
    kept: tuple[int, ...]
    rounds: int

    @property
    def alpha(self) -> float | None:
        """The chance α that a token is accepted, those before it being so: all kept over all tried.

        The likeliest α where it is the same everywhere. None where nothing was drafted.
        """
        return sum(self.kept) / sum(self.tried) if any(self.tried) else None

    @property
    def by_position(self) -> tuple[float, ...]:
        """For each position the share kept of those tried there."""
        return tuple(kept / tried for kept, tried in zip(self.kept, self.tried, strict=True) if tried)

    @property
    def mean_accepted_length(self) -> float:
        """Tokens a round, the target's own included."""
        return 1 + sum(self.kept) / self.rounds if self.rounds else 1.0


def acceptance(runs: Iterable[TimedRun], length: int, limit: int) -> PositionAcceptance:
    """Count what became of drafts of one fixed length.

    Args:
        runs: of chains of ``length`` tokens, fewer only where the answer's end is near.
        length: K, at least 1.
        limit: most new tokens of an answer; a draft never reaches past it.
    """
    tried, kept, rounds = [0] * length, [0] * length, 0
    for answered in (answered for run in runs for answered in run.answers):
        done = 0
        whole = answered.generation.finish_reason == "length"
        # An end token cuts its round short: how much of that draft was kept is not seen.
        for accepted in answered.rounds if whole else answered.rounds[:-1]:
            reach = min(length, limit - done - 1)
            for i in range(min(accepted + 1, reach)):
                tried[i] += 1
                kept[i] += i < accepted
            done += accepted + 1
            rounds += 1
    return PositionAcceptance(tuple(tried), tuple(kept), rounds)


def tokens_a_round(alpha: float, length: float) -> float:
    """Return how many tokens a round of K = ``length`` drafts wins on average; K may be a mean."""
    return length + 1.0 if alpha >= 1.0 else (1.0 - alpha ** (length + 1.0)) / (1.0 - alpha)


def speed_up(alpha: float, length: float, cost: float, verification: float = 1.0) -> float:
    """Return how many times as fast as plain decoding rounds of K = ``length`` drafts are expected to be.

    Args:
        alpha: chance that a draft token is accepted.
        length: K.
        cost: c, of one draft pass in plain steps.
        verification: of the target's pass over K + 1 rows in plain steps; 1 is the closed form.
    """
    return tokens_a_round(alpha, length) / (length * cost + verification)


def implied_alpha(tokens: float, length: float) -> float:
    """Return the α with which rounds of ``length`` drafts win so many ``tokens``; by bisection.

    Where the length differs from round to round this stands in for counting: ``length`` is then its mean.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_a_round(middle, length) < tokens else (low, middle)
    return (low + high) / 2
