"""Turn an option, its estimate and a policy into whether it may be taken, and into what it scores.

First the caller's exclusions (``deny``, ``allow``, ``local_only``), then what is unavailable, then the
limits; what is left is ordered by its score.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from specclient.routing.choose.route_options import CallPrediction, RouteOption
from specclient.routing.learn.drift import FAILING
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.route import CandidateVerdict, Constraint, ConstraintViolation, Policy

__all__ = [
    "MOSTLY_FAILING",
    "broken",
    "excluded",
    "expected_attempts",
    "failing",
    "fails_early",
    "score",
    "trust_rank",
]

#: The share of failed calls above which a route is taken last, whatever it costs.
MOSTLY_FAILING: Final = 0.5
_MOST_FAILING = 0.9
#: The part of a limit of time within which a failure has to show for another route to keep the limit still.
_SOON = 0.25


def excluded(policy: Policy, option: RouteOption) -> tuple[CandidateVerdict, str] | None:
    """Return what keeps an option out whatever a call of it would cost or take, and the way out; or None."""
    route = option.route
    if policy.deny and (denied := next((p for p in policy.deny if route.startswith(p)), None)):
        return "refused", f"denied by policy.deny {denied!r}"
    if policy.allow and not route.startswith(policy.allow):
        return "refused", f"not among policy.allow {', '.join(map(repr, policy.allow))}"
    if policy.local_only:
        drafted = option.played
        if not option.local or (drafted is not None and not drafted.local):
            return "refused", "it leaves this machine, and the policy is local_only"
    if option.unavailable is not None:
        return "unavailable", option.unavailable
    return None


def broken(
    policy: Policy, option: RouteOption, estimate: RouteEstimate, found: CallPrediction, cost: Decimal | None
) -> tuple[ConstraintViolation, ...]:
    """Return the limits that an option is not expected to keep.

    Args:
        found: its figures; ``cost``: its exact dollars.
    """
    missed = []
    least = policy.min_quality
    if least is not None and (option.quality is None or option.quality < least):
        over = None if option.quality is None else least - option.quality
        missed.append(ConstraintViolation("min_quality", least, option.quality, over))
    if policy.max_cost_usd is not None:
        most = Decimal(str(policy.max_cost_usd))
        if cost is None:
            missed.append(ConstraintViolation("max_cost_usd", float(most)))
        elif cost > most:
            missed.append(ConstraintViolation("max_cost_usd", float(most), float(cost), float(cost - most)))
    limits: tuple[tuple[Constraint, float | None, float | None], ...] = (
        ("max_ttft_s", policy.max_ttft_s, found.first_slow_s),
        ("max_latency_s", policy.max_latency_s, found.slow_s),
        (
            "deadline_s",
            None if policy.deadline_s is None else estimate.late * policy.deadline_s,
            found.slow_s,
        ),
    )
    for name, limit, predicted in limits:
        if limit is not None and predicted is not None and predicted > limit:
            if name == "deadline_s":  # which half of the calls are to keep
                limit, predicted = limit / estimate.late, predicted / estimate.late  # noqa: PLW2901
            missed.append(ConstraintViolation(name, limit, predicted, predicted - limit))
    return tuple(missed)


def failing(policy: Policy, estimate: RouteEstimate) -> bool:
    """Tell whether an option fails so often that it is taken last.

    That is half of its calls; under limits of time more than the policy lets miss them. Where others may
    stand in, and its failures are told soon, they break no limit, and it is left only where it keeps failing.
    """
    limits = [each for each in (policy.max_latency_s, policy.max_ttft_s) if each is not None]
    if not limits:
        return estimate.failure_rate > MOSTLY_FAILING
    soon = policy.falls_back and fails_early(policy, estimate.failed_s)
    most = FAILING if soon else min(1 - policy.percentile, MOSTLY_FAILING)
    return estimate.failure_rate > most


def fails_early(policy: Policy, seconds: float | None) -> bool:
    """Tell whether a failure showed so soon that another route can keep the policy's limits of time still."""
    limits = [each for each in (policy.max_latency_s, policy.max_ttft_s) if each is not None]
    return seconds is not None and seconds <= _SOON * min(limits, default=math.inf)


def trust_rank(
    policy: Policy, estimate: RouteEstimate, slow_s: float | None, first_slow_s: float | None
) -> int:
    """Return in which order of trust an option stands; a lower one is taken before a better score.

    0: nothing speaks against it; 1: it is not known to keep a limit of time; 2: it keeps failing.
    """
    if failing(policy, estimate):
        return 2
    unknown = (policy.max_latency_s is not None and slow_s is None) or (
        policy.max_ttft_s is not None and first_slow_s is None
    )
    return 1 if unknown else 0


def score(policy: Policy, dollars: float | None, seconds: float | None, failure_rate: float) -> float | None:
    """Return what is made small, None where what it takes is not known.

    A call that fails has taken its time, and the next try takes its own; it is not billed.
    """
    by_cost, by_time = policy.weights
    total = 0.0
    if by_cost:
        if dollars is None:
            return None
        total = by_cost * dollars
    if by_time:
        if seconds is None:
            return None
        total += by_time * seconds * expected_attempts(failure_rate)
    return total


def expected_attempts(failure_rate: float) -> float:
    """Return how many tries an answer takes on average."""
    return 1 / (1 - min(failure_rate, _MOST_FAILING))
