"""Rules that exclude a route, or rank it after others.

The caller's exclusions come first (``deny``, ``allow``, ``local_only``), then routes that are unavailable.
The limits of a policy are those of its criteria; see :mod:`specclient.routing.choose.policy_terms`.
"""

from __future__ import annotations

from typing import Final

from specclient.routing.choose.route_options import RouteOption
from specclient.routing.learn.adaptive_percentile import fails_early
from specclient.routing.learn.drift import FAILING
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.policy import Policy
from specclient.types.route import CandidateVerdict

__all__ = ["MOSTLY_FAILING", "exclusion", "expected_attempts", "failing"]

#: The share of failed calls above which a route is taken last, whatever it costs.
MOSTLY_FAILING: Final = 0.5
_MOST_FAILING = 0.9


def exclusion(policy: Policy, option: RouteOption) -> tuple[CandidateVerdict, str] | None:
    """Return why an option is ruled out regardless of its cost and speed, or None.

    Returns:
        The verdict and the reason, with what to do about it if there is something.
    """
    route = option.route
    if policy.deny and (denied := next((p for p in policy.deny if route.startswith(p)), None)):
        return "refused", f"denied by policy.deny {denied!r}"
    if policy.allow and not route.startswith(policy.allow):
        return "refused", f"not among policy.allow {', '.join(map(repr, policy.allow))}"
    if policy.local_only:
        draft = option.client_side_draft
        if not option.local or (draft is not None and not draft.local):
            return "refused", "it leaves this machine, and the policy is local_only"
    if option.unavailable is not None:
        return "unavailable", option.unavailable
    return None


def failing(policy: Policy, estimate: RouteEstimate) -> bool:
    """Return whether an option is taken last, because its calls fail or are refused.

    Without limits of time, more than half of its calls must fail; with them, more calls than the policy lets
    miss its limits. Failures that show early break no limit if another route may serve the call: then the
    option is taken last only if it keeps failing. So is one whose rate limit is expected to refuse the call.
    """
    if estimate.limited:
        return True
    if policy.max_latency_s is None and policy.max_ttft_s is None:
        return estimate.failure_rate > MOSTLY_FAILING
    soon = policy.falls_back and fails_early(policy, estimate.failed_s)
    most = FAILING if soon else min(1 - policy.percentile, MOSTLY_FAILING)
    return estimate.failure_rate > most


def expected_attempts(failure_rate: float) -> float:
    """Return the number of attempts that an answer takes on average."""
    return 1 / (1 - min(failure_rate, _MOST_FAILING))
