"""Turn candidate routes with their predictions, and what the caller wants, into a Decision with its reasons.

Pure and deterministic. First the caller's exclusions (``deny``, ``allow``), then what is unavailable,
then the limits; what is left is ordered by the quantity to minimise, then by the other one, then as
the options were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from specclient.errors import NoRouteError
from specclient.types.route import Candidate, Decision, Policy, Verdict

__all__ = ["Option", "choose", "named"]


@dataclass(frozen=True, slots=True)
class Option:
    """A route that could be taken, with what is predicted of it.

    Attributes:
        route: ``provider/model``; ``provider`` and ``model``: its parts as they are sent.
        unavailable: why it cannot be taken now and the way out, None if it can.
        cost: predicted dollars, None where unknown.
        latency_s: predicted seconds to the whole answer, None where unknown.
        acceptance_rate: of its drafts, None where unknown.
        evidence: finished calls behind the prediction.
    """

    route: str
    provider: str
    model: str
    unavailable: str | None = None
    cost: Decimal | None = None
    latency_s: float | None = None
    acceptance_rate: float | None = None
    evidence: int = 0


def named(route: str, provider: str, model: str) -> Decision:
    """Return the decision for a model that the caller named: one candidate, chosen."""
    reason = "named by the caller"
    candidate = Candidate(route=route, verdict="chosen", reason=reason)
    return Decision(chosen=route, provider=provider, model=model, candidates=(candidate,), reason=reason)


def choose(policy: Policy, options: Sequence[Option]) -> Decision:
    """Choose one of the options.

    An unknown cost never wins against a known one, nor an unknown latency. Under ``max_cost_usd`` an
    option of unknown cost is refused: the limit could not be kept. Under ``max_latency_s`` one of unknown
    latency stays, behind those known to be fast enough: it could never become known otherwise.

    Raises:
        NoRouteError: nothing is left; lists every candidate with what stood against it, and carries the
            decision as ``decision``.
    """
    obstacles = [_obstacle(option, policy) for option in options]
    feasible = [(option, place) for place, option in enumerate(options) if obstacles[place] is None]
    if not feasible:
        raise _no_route(policy, options, obstacles)
    best, _ = min(feasible, key=lambda pair: (*_rank(pair[0], policy), pair[1]))
    reason = _why(best, policy, alone=len(feasible) == 1)
    candidates = tuple(
        _candidate(option, "chosen", reason)
        if option is best
        else _candidate(option, *(obstacle or ("left", _comparison(option, best, policy))))
        for option, obstacle in zip(options, obstacles, strict=True)
    )
    return Decision(
        chosen=best.route,
        provider=best.provider,
        model=best.model,
        candidates=candidates,
        reason=reason,
        policy=policy,
    )


def _obstacle(option: Option, policy: Policy) -> tuple[Verdict, str] | None:
    """Return what keeps an option out, with the figure by which it does, or None."""
    if denied := next((p for p in policy.deny if option.route.startswith(p)), None):
        return "refused", f"denied by policy.deny {denied!r}"
    if policy.allow and not option.route.startswith(policy.allow):
        return "refused", f"not among policy.allow {', '.join(map(repr, policy.allow))}"
    if option.unavailable is not None:
        return "unavailable", option.unavailable
    if policy.max_cost_usd is not None:
        limit = Decimal(str(policy.max_cost_usd))
        if option.cost is None:
            return "refused", f"its cost is unknown, so max_cost_usd {limit} cannot be kept"
        if option.cost > limit:
            over = dollars(option.cost - limit)
            return "refused", f"predicted {dollars(option.cost)} exceeds max_cost_usd {limit} by {over}"
    if policy.max_latency_s is not None and option.latency_s is not None:
        over_s = option.latency_s - policy.max_latency_s
        if over_s > 0:
            predicted = seconds(option.latency_s)
            return (
                "refused",
                f"predicted {predicted} exceeds max_latency_s {policy.max_latency_s:g} by {seconds(over_s)}",
            )
    return None


def _rank(option: Option, policy: Policy) -> tuple[bool, bool, Decimal | float, bool, Decimal | float]:
    """Order: limits verified, then the quantity to minimise, then the other; unknown after known."""
    unverified = policy.max_latency_s is not None and option.latency_s is None
    first, second = (
        (option.cost, option.latency_s) if policy.minimize == "cost" else (option.latency_s, option.cost)
    )
    return (
        unverified,
        first is None,
        0 if first is None else first,
        second is None,
        0 if second is None else second,
    )


def _why(best: Option, policy: Policy, *, alone: bool) -> str:
    known = best.cost if policy.minimize == "cost" else best.latency_s
    superlative = "cheapest" if policy.minimize == "cost" else "fastest"
    if alone:
        return f"the only candidate left: {_prediction(best)}"
    if known is None:
        return f"{_prediction(best)}; no candidate's {policy.minimize} is known, so the given order decides"
    return f"{superlative}: {_prediction(best)}"


def _comparison(option: Option, best: Option, policy: Policy) -> str:
    """Say why an option that met every limit was left for the best one."""
    if policy.max_latency_s is not None and option.latency_s is None and best.latency_s is not None:
        limit = f"max_latency_s {policy.max_latency_s:g}"
        return f"{_prediction(option)}: not known to keep {limit}, as the chosen is"
    mine, its = (option.cost, best.cost) if policy.minimize == "cost" else (option.latency_s, best.latency_s)
    if its is None:
        return f"{_prediction(option)}; after the chosen in the given order"
    if mine is None:
        return f"{_prediction(option)}: cannot win against a known {policy.minimize}"
    if mine == its:
        return f"{_prediction(option)}: no better than the chosen"
    times = f", {float(mine) / float(its):.3g}× the chosen" if its else ""
    return f"{_prediction(option)}{times}"


def _prediction(option: Option) -> str:
    if option.cost is None and option.latency_s is None:
        return "nothing is known of it yet"
    cost = "cost unknown" if option.cost is None else f"predicted {dollars(option.cost)}"
    latency = "latency unknown" if option.latency_s is None else f"predicted {seconds(option.latency_s)}"
    measured = f"{option.evidence} calls measured" if option.evidence != 1 else "1 call measured"
    return f"{cost}, {latency} ({measured})"


def _candidate(option: Option, verdict: Verdict, reason: str) -> Candidate:
    return Candidate(
        route=option.route,
        cost=option.cost,
        latency_s=option.latency_s,
        acceptance_rate=option.acceptance_rate,
        evidence=option.evidence,
        verdict=verdict,
        reason=reason,
    )


def _no_route(
    policy: Policy, options: Sequence[Option], obstacles: Sequence[tuple[Verdict, str] | None]
) -> NoRouteError:
    candidates = tuple(
        _candidate(option, *obstacle) for option, obstacle in zip(options, obstacles, strict=True) if obstacle
    )
    if not candidates:
        message = "there are no routes to choose among; list some under `candidates` in specclient.toml"
    else:
        lines = "".join(f"\n  {c.route}: {c.reason}" for c in candidates)
        message = f"none of {len(candidates)} candidates satisfies the policy:{lines}"
    decision = Decision(
        chosen="", provider="", model="", candidates=candidates, reason=message, policy=policy
    )
    return NoRouteError(message, decision=decision)


def dollars(amount: Decimal) -> str:
    """Return an amount to three significant digits: ``$0.00042``."""
    return f"${_plain(amount)}"


def seconds(duration: float) -> str:
    """Return a duration to three significant digits: ``4.2 s``."""
    return f"{_plain(Decimal(repr(duration)))} s"


def _plain(value: Decimal) -> str:
    rounded = Decimal(f"{value:.3g}") if value else value
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
