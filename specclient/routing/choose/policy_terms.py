"""A policy with its criteria looked up: the weights to score by and the bounds to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from specclient.errors import ConfigurationError
from specclient.runtime.frozen_dict import FrozenDict
from specclient.types.criterion import COST, CRITERIA, LATENCY, Bound, CandidateCall, Criterion
from specclient.types.policy import Policy
from specclient.types.route import ConstraintViolation

__all__ = ["LimitedBound", "PolicyTerms", "policy_terms"]

#: The rounding error of sums of floats, as a share of a limit. Values as near to it are compared exactly.
_ROUNDING = 1e-9


class LimitedBound(NamedTuple):
    """A bound on which a policy sets a limit.

    Attributes:
        criterion, bound: of the list of criteria.
        limit: the limit as a float.
        exact_limit: the limit as it was written.
        sign: 1 for an upper limit, -1 for a lower one. ``sign * value`` breaks the limit above ``high``,
            keeps it below ``low``, and is compared exactly in between.
    """

    criterion: Criterion
    bound: Bound
    limit: float
    exact_limit: Decimal
    sign: float
    low: float
    high: float

    @classmethod
    def of(cls, criterion: Criterion, bound: Bound, limit: float | Decimal) -> LimitedBound:
        """Return the bound for a limit."""
        value, sign = float(limit), 1.0 if bound.at_most else -1.0
        slack = abs(value) * _ROUNDING
        return cls(
            criterion, bound, value, Decimal(str(limit)), sign, sign * value - slack, sign * value + slack
        )

    def value(self, call: CandidateCall) -> float | Decimal | None:
        """Return the value of a call that must keep the limit, None where unknown."""
        return (self.bound.predict or self.criterion.predict)(call)

    def violation(self, call: CandidateCall) -> ConstraintViolation | None:
        """Return how a call breaks the limit, None if it keeps it or its value is unknown but tolerated."""
        value = self.value(call)
        if value is None:
            refused = self.bound.unknown == "refuse"
            return ConstraintViolation(self.bound.field, self.limit) if refused else None
        over: float | Decimal
        if isinstance(value, Decimal):
            over = value - self.exact_limit if self.bound.at_most else self.exact_limit - value
        else:
            over = value - self.limit if self.bound.at_most else self.limit - value
        if over <= 0:
            return None
        return ConstraintViolation(self.bound.field, self.limit, float(value), float(over))


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """A policy, and the rows of :data:`specclient.types.criterion.CRITERIA` that it uses.

    Attributes:
        criteria: all criteria, in order.
        weights: the weighed criteria and the weight of a unit of each.
        bounds: the bounds with a limit.
        tie_breaker: the criterion that decides between equal scores.
        explained: the criteria whose values a reason states.
    """

    policy: Policy
    criteria: tuple[Criterion, ...]
    weights: tuple[tuple[Criterion, float], ...]
    bounds: tuple[LimitedBound, ...]
    tie_breaker: Criterion
    explained: tuple[Criterion, ...]

    @property
    def goal(self) -> str:
        """The names of the weighed criteria, for reasons."""
        return " and ".join(criterion.title for criterion, _ in self.weights)

    def figures(self, call: CandidateCall) -> Mapping[str, float | None]:
        """Return the predicted value of every criterion, by its name."""
        return FrozenDict({each.name: each.predict(call) for each in self.criteria})

    def score(self, call: CandidateCall, attempts: float) -> tuple[float, bool]:
        """Return the quantity to minimize, as far as it is known, and whether all of it is.

        Args:
            attempts: the attempts that an answer takes on average; see :attr:`Criterion.per_attempt`.
        """
        total, complete = 0.0, True
        for criterion, weight in self.weights:
            value = criterion.predict(call)
            if value is None:
                complete = False
            else:
                total += weight * value * attempts if criterion.per_attempt else weight * value
        return total, complete

    def violations(self, call: CandidateCall) -> tuple[ConstraintViolation, ...]:
        """Return the limits that a call is not expected to keep."""
        return tuple(found for each in self.bounds if (found := each.violation(call)) is not None)

    def unproven(self, call: CandidateCall) -> bool:
        """Return whether a limit that ranks unknown values last has one here."""
        return any(each.bound.unknown == "rank_last" and each.value(call) is None for each in self.bounds)

    def bound(self, field: str) -> LimitedBound:
        """Return the limited bound of a field."""
        return next(each for each in self.bounds if each.bound.field == field)


def policy_terms(policy: Policy) -> PolicyTerms:
    """Return a policy's terms; cached until the list of criteria changes."""
    return _terms(policy, CRITERIA.version)


@lru_cache(maxsize=512)
def _terms(policy: Policy, _version: int) -> PolicyTerms:
    given = policy.weights
    if missing := [*(given.keys() - CRITERIA.keys()), *(policy.limits.keys() - CRITERIA.bounds.keys())]:
        raise ConfigurationError(
            f"the policy uses {missing[0]!r}, and there is no such criterion or bound; "
            "add its criterion to specclient.types.criterion.CRITERIA"
        )
    criteria = tuple(CRITERIA.values())
    weights = tuple((each, weight) for each in criteria if (weight := given.get(each.name, 0.0)))
    limits = ((*row, policy.limit(field)) for field, row in CRITERIA.bounds.items())
    bounds = tuple(
        LimitedBound.of(criterion, bound, limit) for criterion, bound, limit in limits if limit is not None
    )
    weighed = {criterion.name for criterion, _ in weights}
    used = weighed | {each.criterion.name for each in bounds}
    return PolicyTerms(
        policy,
        criteria,
        weights,
        bounds,
        tie_breaker=LATENCY if COST.name in weighed else COST,
        explained=tuple(
            each
            for each in criteria
            if each.explained == "always" or (each.explained == "used" and each.name in used)
        ),
    )
