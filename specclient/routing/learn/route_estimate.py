"""Estimates: what is expected of the next call on a route, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

from specclient.types.criterion import PromptTask

__all__ = ["HEDGE_PERCENTILE", "AnswerLength", "RouteEstimate", "RouteStatistics", "representative_length"]

#: The share of calls that have their first token before a hedge is sent.
HEDGE_PERCENTILE = 0.95


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """The expected tokens of an answer.

    Attributes:
        low, median, high: the tokens that 10 %, 50 % and 90 % of answers do not exceed.
        measured: whether it comes from finished calls.
    """

    low: int
    median: int
    high: int
    measured: bool = False


@dataclass(frozen=True, slots=True)
class RouteEstimate:
    """The estimate for the next call on a route, for prompts of one task.

    The median seconds of an answer are linear in its tokens: ``ttft_s + token_s * tokens``. The share
    ``percentile`` of calls take at most ``limit_factor`` times as long, and 10 % of calls at most
    ``p10_factor`` times.

    Attributes:
        evidence: the number of finished calls behind it, old ones weighted less; 0 for priors.
        calls: the number of finished calls seen on this route.
        ttft_s: median seconds to the first token, None where unknown.
        token_s: median seconds per further token, None where ``ttft_s`` is.
        ttft_limit_s: the seconds to the first token that ``percentile`` of calls keep.
        p10_factor, limit_factor: factors of the median, as above.
        p95_ttft_s, p95_factor: ``ttft_limit_s`` and ``limit_factor`` for 95 % of calls, after which a hedge
            is sent; None if ``percentile`` is 0.95.
        engine_token_s: seconds of the engine in this process per token, None for hosted routes.
        failure_rate: the share of calls that fail, from 0 to 1.
        failed_s: the seconds after which most failures show, None where unknown.
        acceptance_rate: the share of accepted draft tokens, None where unknown.
        tokens_per_verification: tokens per pass of the target, None where unknown.
        depth: the best number of tokens to draft at a time, 0 if speculation would be slower, None if the
            cost of drafting is unknown.
        uncertain: whether little, or nothing recent, is known, so that a call to learn more is worthwhile.
        optimistic_speedup: how many times faster than expected the route could well be, 1 with much evidence.
        retry: whether the route was left as slow or failing and is due to be tried again.
        limited: whether a rate limit has refused a call and is expected to refuse the next one.
        assumed: whether the values are priors.
        similar: whether these priors are those of similar routes.
    """

    evidence: float = 0.0
    calls: int = 0
    ttft_s: float | None = None
    token_s: float | None = None
    ttft_limit_s: float | None = None
    p10_factor: float = 1.0
    limit_factor: float = 1.0
    p95_ttft_s: float | None = None
    p95_factor: float | None = None
    engine_token_s: float | None = None
    failure_rate: float = 0.0
    failed_s: float | None = None
    acceptance_rate: float | None = None
    tokens_per_verification: float | None = None
    depth: int | None = None
    uncertain: bool = True
    optimistic_speedup: float = 1.0
    retry: bool = False
    limited: bool = False
    assumed: bool = True
    similar: bool = False

    @property
    def patience_s(self) -> float | None:
        """The seconds to the first token that 95 % of calls keep, None where unknown."""
        return self.ttft_limit_s if self.p95_ttft_s is None else self.p95_ttft_s

    @property
    def hedge_factor(self) -> float:
        """The factor of the median seconds that 95 % of calls keep."""
        return self.limit_factor if self.p95_factor is None else self.p95_factor

    def latency_s(self, tokens: float) -> float | None:
        """Return the median seconds of an answer of ``tokens`` tokens, None where unknown."""
        if self.ttft_s is None or self.token_s is None:
            return None
        return self.ttft_s + self.token_s * tokens


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """The learned figures of one task on one route, for people to read.

    Attributes:
        route: ``provider/model``.
        task: None for all tasks of the route together.
        calls: the number of answered calls.
        estimate: for the next call.
        length: the tokens of its answers; None without any.
        age_s: seconds since the route's last call.
        slow, failing: whether the route has become slower than before, or is failing now.
    """

    route: str
    task: PromptTask | None
    calls: int
    estimate: RouteEstimate
    length: AnswerLength | None
    age_s: float
    slow: bool
    failing: bool


def representative_length(prompt_tokens: int | None) -> int | None:
    """Return the length that represents all prompts up to an eighth longer or shorter."""
    if prompt_tokens is None:
        return None
    step = max(prompt_tokens.bit_length() - 3, 0)
    return (prompt_tokens >> step << step) + (1 << step >> 1)
