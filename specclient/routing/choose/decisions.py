"""Turn options with their estimates, and what the caller wants, into a Decision with its reasons.

Pure and deterministic. First the caller's exclusions (``deny``, ``allow``, ``local_only``), then what is
unavailable, then the limits; what is left is ordered by the quantity to make small, then by the other one,
then as the options were given. Where an explorer is given, a route of which too little is known, or that may
have recovered, is now and then tried instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from specclient.routing.choose.explanation import DecisionSnapshot, dollars, no_route_error, seconds
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.types.route import Candidate, Decision, Policy

__all__ = ["RouteOption", "RouteRequest", "choose", "choose_in_order", "dollars", "named_decision", "seconds"]


def named_decision(route: str, provider: str, model: str) -> Decision:
    """Return the decision for a model that the caller named: one candidate, chosen."""
    reason = "named by the caller"
    candidate = Candidate(route=route, verdict="chosen", reason=reason)
    return Decision(chosen=route, provider=provider, model=model, candidates=(candidate,), reason=reason)


def choose(
    policy: Policy,
    options: Sequence[RouteOption],
    estimates: Callable[[str], RouteEstimate],
    asked: RouteRequest,
    *,
    explorer: Explorer | None = None,
) -> Decision:
    """Choose one of the options, once; :class:`specclient.routing.choose.score_table.ScoreTable` chooses
    many times.

    An unknown cost never wins against a known one, nor an unknown latency. Under ``max_cost_usd`` an option
    of unknown cost is refused: the limit could not be kept. Under limits of time one of unknown speed stays,
    behind those known to be fast enough: it could never become known otherwise.

    Args:
        estimates: of a route, for this task and the policy's percentile.
        asked: the call.
        explorer: decides when somebody is tried to learn more of them; None never does.

    Raises:
        NoRouteError: nothing is left; lists every candidate with what stood against it, and carries the
            decision as ``decision``.
    """
    slate = ScoreTable(policy, options, asked.task)
    slate.update([estimates(route) for route in slate.routes])
    return slate.decide(asked, explorer)


def choose_in_order(
    policy: Policy, options: Sequence[RouteOption], estimates: Sequence[RouteEstimate], asked: RouteRequest
) -> Decision:
    """Decide on the first of some options that may be taken, the rest in their order standing behind it.

    Exclusions, and limits of dollars and of quality, stand for all of them; limits of time do not: the caller
    has said where to go.

    Raises:
        NoRouteError: none may be taken.
    """
    lasting = replace(policy, max_latency_s=None, max_ttft_s=None, deadline_s=None)
    snapshot = DecisionSnapshot(
        lasting, tuple(options), tuple(estimates), (None,) * len(options), asked, ranked=False
    )
    order = snapshot.order()
    if not order:
        raise no_route_error(snapshot)
    decision = snapshot.decision(order[0], "given")
    return replace(decision, policy=policy)
