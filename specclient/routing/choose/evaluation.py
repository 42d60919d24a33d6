"""The evaluation of every option of one decision, computed on first use from immutable data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, overload

from specclient.routing.choose.constraints import exclusion, expected_attempts, failing
from specclient.routing.choose.policy_terms import PolicyTerms
from specclient.routing.choose.route_options import (
    RouteOption,
    RouteRequest,
    exact_cost,
    option_depth,
    predict_call,
)
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.criterion import CandidateCall
from specclient.types.policy import Policy
from specclient.types.route import Alternative, CandidateVerdict, ConstraintViolation

__all__ = ["CandidateEvaluation", "DecisionSnapshot", "LazyAlternatives", "RankKey"]

#: The order of options before their scores: 0 for a sound option, 1 if it is not known to keep a limit of
#: time, 2 if its calls keep failing; then whether its score is incomplete.
RankKey = tuple[int, bool]
#: The fields of limits that hold for a share of a policy's calls, not for each of them.
LIMITS_OF_TIME = frozenset({"max_latency_s", "max_ttft_s"})
#: The share of the estimated tokens of a prompt that it surely has.
_SURE = 0.75


@dataclass(frozen=True, slots=True)
class CandidateEvaluation:
    """An option with its limits and score under a policy.

    Attributes:
        excluded: the verdict and the reason if it is ruled out regardless of its cost and speed.
        violations: the limits that it is not expected to keep.
        call: the predicted call.
        rank: see :data:`RankKey`.
        score: the quantity to minimize, as far as it is known.
        tie_breaker: the value that decides between equal scores, infinite where unknown.
    """

    excluded: tuple[CandidateVerdict, str] | None
    violations: tuple[ConstraintViolation, ...]
    call: CandidateCall
    rank: RankKey
    score: float
    tie_breaker: float

    @property
    def open(self) -> bool:
        """Whether the option may be taken."""
        return self.excluded is None and not self.violations

    @property
    def late(self) -> bool:
        """Whether the option breaks a limit of time, and nothing else keeps it from being taken."""
        return (
            self.excluded is None
            and bool(self.violations)
            and all(each.constraint in LIMITS_OF_TIME for each in self.violations)
        )

    @property
    def missed_share(self) -> float:
        """The greatest excess over a limit, as a share of the limit; 0 without any."""
        return max(((each.over or 0.0) / (each.limit or 1e-9) for each in self.violations), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class DecisionSnapshot:
    """Everything that one decision depends on.

    Attributes:
        terms: the policy, with its criteria.
        estimates: of each option.
        drafting: the estimate of each option's client-side draft, None without one.
        ranked: whether the best option is taken; False takes the first in the given order.
        share: the share of calls that keep the limits in ``estimates``, None for the policy's percentile.
        late: whether options that break limits of time are alternatives, after those that keep them.
    """

    terms: PolicyTerms
    options: tuple[RouteOption, ...]
    estimates: tuple[RouteEstimate, ...]
    drafting: tuple[RouteEstimate | None, ...]
    request: RouteRequest
    ranked: bool = True
    share: float | None = None
    late: bool = False
    _evaluations: dict[int, CandidateEvaluation] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self.terms.policy

    def evaluation(self, index: int) -> CandidateEvaluation:
        """Return the evaluation of an option."""
        known = self._evaluations.get(index)
        if known is None:
            known = self._evaluations[index] = self._evaluate(index)
        return known

    def prediction(self, index: int) -> CandidateCall:
        """Return the predicted call on an option; ``exact_cost_usd`` is None."""
        return predict_call(self.options[index], self.estimates[index], self.request, self.drafting[index])

    def could_beat(self, index: int, least: float) -> bool:
        """Return whether an option could score below ``least``, and be taken, once more is known about it.

        Limits of time hold for the seconds that a call could well take.
        """
        option, evaluation = self.options[index], self.evaluation(index)
        if evaluation.excluded is not None:
            return False
        call = _optimistic(
            evaluation.call, self.estimates[index].optimistic_speedup, priced=option.tariff is not None
        )
        score, complete = self.terms.score(call, 1.0)
        if not complete or score >= least:
            return False  # a value that is still unknown, such as a price, is not learned by calling
        return not (evaluation.violations and self.terms.violations(call))

    def fits(self, index: int) -> bool:
        """Return whether prompt and answer fit into an option's context."""
        return _overflow(self.options[index], self.request) is None

    def best_of_tied(self, tied: Sequence[int]) -> int:
        """Return the option that is best by the policy's tie breaker, then by the given order."""
        return min(tied, key=lambda index: (self.evaluation(index).tie_breaker, index))

    def alternative(self, index: int) -> Alternative:
        """Return an option in the form in which a call is sent."""
        option, estimate = self.options[index], self.estimates[index]
        draft = option.client_side_draft
        ttft_s, token_s = estimate.ttft_s, estimate.token_s
        patience_s = limit_s = None
        if ttft_s is not None and token_s is not None and draft is None:
            patience_s = estimate.patience_s
            limit_s = estimate.hedge_factor * (ttft_s + token_s * self.request.length.median)
        return Alternative(
            option.route,
            option.provider,
            option.model,
            option.strategy if draft is None else draft.strategy,
            option_depth(option, estimate, self.request),
            patience_s,
            limit_s,
        )

    def order(self) -> list[int]:
        """Return the options that may be taken, best first."""
        evaluations = [(index, self.evaluation(index)) for index in range(len(self.options))]
        left = [(index, each) for index, each in evaluations if each.open]
        if self.ranked:
            left.sort(key=lambda pair: (pair[1].rank, pair[1].score, pair[1].tie_breaker, pair[0]))
        return [index for index, _ in left] + (self.late_order() if self.late else [])

    def late_order(self) -> list[int]:
        """Return the options that break no limit but those of time, nearest to them first.

        Those that could well keep the limits once more is known about them precede the others.
        """
        late = [index for index in range(len(self.options)) if self.evaluation(index).late]

        def missed(index: int) -> tuple[RankKey, bool, float, int]:
            evaluation = self.evaluation(index)
            hopeless = not self.could_beat(index, float("inf"))
            return evaluation.rank, hopeless, evaluation.missed_share, index

        return sorted(late, key=missed)

    def others(self, chosen: int) -> tuple[Alternative, ...]:
        """Return the alternatives to an option, best first, one for each other route."""
        seen = {self.options[chosen].route}
        others = []
        for index in self.order():
            route = self.options[index].route
            if route not in seen:  # another strategy on the same route would fail the same way
                seen.add(route)
                others.append(self.alternative(index))
        return tuple(others)

    def cost_range(self, index: int) -> tuple[Decimal, Decimal] | None:
        """Return the dollars of a short and of a long answer on an option, None where unknown."""
        option, estimate, length = self.options[index], self.estimates[index], self.request.length
        low = exact_cost(option, estimate, self.request, length.low, self.drafting[index])
        high = exact_cost(option, estimate, self.request, length.high, self.drafting[index])
        return None if low is None or high is None else (low, high)

    def _evaluate(self, index: int) -> CandidateEvaluation:
        terms, request = self.terms, self.request
        option, estimate, drafting = self.options[index], self.estimates[index], self.drafting[index]
        cost = exact_cost(option, estimate, request, request.length.median, drafting)
        call = predict_call(option, estimate, request, drafting, cost)
        excluded = exclusion(terms.policy, option)
        if excluded is None and (too_long := _overflow(option, request)):
            excluded = "refused", too_long
        draft = option.client_side_draft
        if excluded is None and draft is not None and draft.greedy and not request.greedy:
            reason = "only greedy completions can be verified token by token: pass temperature=0"
            excluded = "unavailable", reason
        score, complete = terms.score(call, expected_attempts(estimate.failure_rate))
        trust = 2 if failing(terms.policy, estimate) else 1 if terms.unproven(call) else 0
        tie_breaker = terms.tie_breaker.predict(call)
        return CandidateEvaluation(
            excluded,
            () if excluded is not None else terms.violations(call),
            call,
            (trust, not complete),
            score,
            float("inf") if tie_breaker is None else tie_breaker,
        )


class LazyAlternatives(Sequence[Alternative]):
    """The alternatives of a decision; put in order when they are read."""

    __slots__ = ("_chosen", "_made", "_snapshot")

    def __init__(self, snapshot: DecisionSnapshot, chosen: int) -> None:
        self._snapshot: DecisionSnapshot | None = snapshot
        self._chosen = chosen
        self._made: tuple[Alternative, ...] = ()

    def _read(self) -> tuple[Alternative, ...]:
        snapshot = self._snapshot
        if snapshot is not None:
            self._made = snapshot.others(self._chosen)
            self._snapshot = None  # frees the estimates
        return self._made

    @overload
    def __getitem__(self, index: int) -> Alternative: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Alternative, ...]: ...
    def __getitem__(self, index: int | slice) -> Alternative | tuple[Alternative, ...]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyAlternatives | tuple) and self._read() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._read(),)


def _optimistic(call: CandidateCall, times: float, *, priced: bool) -> CandidateCall:
    """Return an optimistic prediction: ``times`` as fast, and 0 seconds where the time is unknown.

    Args:
        priced: whether the route has a price; its dollars are then only unknown because its seconds are.
    """
    return call._replace(
        cost_usd=0.0 if call.cost_usd is None and priced else call.cost_usd,
        latency_s=(call.latency_s or 0.0) / times,
        latency_limit_s=(call.latency_limit_s or 0.0) / times,
        ttft_s=(call.ttft_s or 0.0) / times,
        ttft_limit_s=(call.ttft_limit_s or 0.0) / times,
    )


def _overflow(option: RouteOption, request: RouteRequest) -> str | None:
    """Return why a call does not fit into an option's context, None if it does."""
    prompt = round(request.prompt_tokens * option.scale)
    if option.published_context:
        reserved, least = 0, round(prompt * _SURE)
    else:
        reserved, least = request.reserved_tokens, prompt
    if option.context is None or least + reserved <= option.context:
        return None
    room = f", plus room for {reserved} more" if reserved else ""
    return f"its context has {option.context} tokens, and the prompt has about {prompt}{room}"
