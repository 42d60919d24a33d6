"""What is expected of the next call on a route: the figures that a policy compares, with their ranges."""

from __future__ import annotations

from dataclasses import dataclass

from specclient.types.route import PromptTask

__all__ = ["HEDGE_PERCENTILE", "AnswerLength", "RouteEstimate", "RouteStatistics"]

#: The share of calls that a hedge waits for.
HEDGE_PERCENTILE = 0.95


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """Tokens of an answer: the middle, and what 10 % and 90 % of answers stay below.

    Attributes:
        measured: whether finished calls are behind it.
    """

    low: int
    middle: int
    high: int
    measured: bool = False


@dataclass(frozen=True, slots=True)
class RouteEstimate:
    """What is expected of the next call on a route, for prompts of one task.

    Seconds of an answer grow in a line with its tokens: ``ttft_s + token_s × tokens``, of which the share
    ``percentile`` of calls need at most ``late`` times as many, and a tenth less than ``early`` times.

    Attributes:
        evidence: finished calls behind it, old ones counting less; 0 where there is only a prior.
        calls: how many finished calls were seen of this route.
        ttft_s: median seconds to the first token; None where nothing is known, and then ``token_s``, median
            seconds for each further one, is None, too.
        ttft_limit_s: seconds to the first token that ``percentile`` of calls keep.
        early, late: as above.
        usual_limit_s, usual_late: what ``ttft_limit_s`` and ``late`` are of 95 % of calls, which is what a
            hedge waits for; None where ``percentile`` is that.
        engine_token_s: seconds of the engine in this process for each token, None for hosted routes.
        failure_rate: share of calls that fail, from 0 to 1; ``failed_s``: seconds until most failures showed,
            None where nothing is known.
        acceptance_rate: of drafted tokens, None where none are known of.
        tokens_per_verification: tokens that each pass of the target gave, None where unknown.
        depth: tokens drafted at a time that are expected to serve best, 0 where speculation would lose; None
            where it is not known what drafting costs there.
        doubtful: whether too little, or nothing recent, is known: worth a call to learn more.
        hopeful: how many times faster than expected it could well turn out to be, 1 where much is known.
        retry: whether it was left for being slow or failing, long enough ago to be tried again.
        assumed: whether these are shipped priors, and nothing was measured.
    """

    evidence: float = 0.0
    calls: int = 0
    ttft_s: float | None = None
    token_s: float | None = None
    ttft_limit_s: float | None = None
    early: float = 1.0
    late: float = 1.0
    usual_limit_s: float | None = None
    usual_late: float | None = None
    engine_token_s: float | None = None
    failure_rate: float = 0.0
    failed_s: float | None = None
    acceptance_rate: float | None = None
    tokens_per_verification: float | None = None
    depth: int | None = None
    doubtful: bool = True
    hopeful: float = 1.0
    retry: bool = False
    assumed: bool = True

    @property
    def patience_s(self) -> float | None:
        """Seconds to the first token that 95 % of calls keep, None where unknown."""
        return self.ttft_limit_s if self.usual_limit_s is None else self.usual_limit_s

    @property
    def slow(self) -> float:
        """How many times as many seconds 95 % of calls need at most."""
        return self.late if self.usual_late is None else self.usual_late

    def latency_s(self, tokens: float) -> float | None:
        """Return the median seconds of an answer of so many tokens, None where nothing is known."""
        if self.ttft_s is None or self.token_s is None:
            return None
        return self.ttft_s + self.token_s * tokens


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """What was learned of one task on one route, for people to read.

    Attributes:
        route: ``provider/model``; ``task``: None for all its tasks together.
        calls: seen of it that brought an answer.
        estimate: of the next one.
        length: middle and ends of its answers; None where there were none.
        age_s: seconds since the route's last call.
        slow, failing: whether it has become slower than it was, or fails now.
    """

    route: str
    task: PromptTask | None
    calls: int
    estimate: RouteEstimate
    length: AnswerLength | None
    age_s: float
    slow: bool
    failing: bool
