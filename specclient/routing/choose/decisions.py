"""Single decisions: a named model, one choice among options, or the first usable option of a given order.

The functions are pure and deterministic. They apply the caller's exclusions (``deny``, ``allow``,
``local_only``), then drop unavailable routes, then apply the limits. The remaining options are ordered by the
quantity to minimize, then by another criterion, then as they were given. With an explorer, some calls go to a
route of which little is known, or that may have recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from specclient.routing.choose.evaluation import DecisionSnapshot
from specclient.routing.choose.explanation import decision_for, no_route_error
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.policy_terms import policy_terms
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.policy import Policy
from specclient.types.route import Candidate, Decision

__all__ = ["choose", "choose_in_order", "named_decision"]


@lru_cache(maxsize=1024)  # most calls repeat an earlier decision
def named_decision(route: str, provider: str, model: str, *, alias: str | None = None) -> Decision:
    """Return the decision for a model that the caller named: one candidate, chosen.

    Args:
        alias: the name that the caller wrote; None if it is the route's own.
    """
    reason = "named by the caller" if alias is None else f"named by the caller as {alias!r}"
    candidate = Candidate(route=route, verdict="chosen", reason=reason)
    return Decision(chosen=route, provider=provider, model=model, candidates=(candidate,), reason=reason)


def choose(
    policy: Policy,
    options: Sequence[RouteOption],
    estimates: Callable[[str], RouteEstimate],
    request: RouteRequest,
    *,
    explorer: Explorer | None = None,
) -> Decision:
    """Choose one of the options, once.

    For repeated choices, :class:`specclient.routing.choose.score_table.ScoreTable` is faster.

    An unknown cost never wins against a known one, nor an unknown latency. Under ``max_cost_usd`` an option
    of unknown cost is refused, since the limit could not be kept. Under limits of time an option of unknown
    speed stays, ranked behind those known to be fast enough: otherwise its speed would never become known.

    Args:
        estimates: returns the estimate of a route, for this task and the policy's percentile.
        request: the call.
        explorer: decides when an option is tried to learn more about it; None never tries any.

    Raises:
        NoRouteError: no option is left. The message lists every candidate with its reason, and ``decision``
            holds them.
    """
    table = ScoreTable(policy, options, request.task)
    table.update([estimates(route) for route in table.routes])
    return table.decide(request, explorer)


def choose_in_order(
    policy: Policy, options: Sequence[RouteOption], estimates: Sequence[RouteEstimate], request: RouteRequest
) -> Decision:
    """Decide on the first usable option; the others are its alternatives, in order.

    Exclusions and all limits hold except those of time, since the caller has named the routes.

    Raises:
        NoRouteError: no option may be taken.
    """
    timeless = replace(policy, max_latency_s=None, max_ttft_s=None, deadline_s=None)
    snapshot = DecisionSnapshot(
        policy_terms(timeless),
        tuple(options),
        tuple(estimates),
        (None,) * len(options),
        request,
        ranked=False,
    )
    order = snapshot.order()
    if not order:
        raise no_route_error(snapshot)
    return replace(decision_for(snapshot, order[0], "given"), policy=policy)
