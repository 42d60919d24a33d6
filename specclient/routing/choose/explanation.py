"""Decisions in words: every candidate's figures, and why it was chosen, left or refused.

The texts of candidates are made when they are read; see :mod:`specclient.routing.choose.evaluation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from specclient.errors import NoRouteError
from specclient.routing.choose.constraints import MOSTLY_FAILING
from specclient.routing.choose.evaluation import DecisionSnapshot, LazyAlternatives
from specclient.routing.choose.policy_terms import PolicyTerms
from specclient.routing.choose.route_options import option_depth
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.runtime.lazy_sequence import LazySequence
from specclient.runtime.number_format import format_number, plain_decimal
from specclient.types.criterion import CandidateCall
from specclient.types.route import Candidate, CandidateVerdict, ConstraintViolation, Decision

__all__ = ["ChoiceCause", "decision_for", "no_route_error"]

#: Why an option is chosen: its score, to learn more about it, because it misses limits of time by the least,
#: or because the caller named it.
ChoiceCause = Literal["best", "tried", "nearest", "given"]
#: The predicted value of every criterion, by its name; None where unknown.
Figures = Mapping[str, float | None]


def decision_for(snapshot: DecisionSnapshot, chosen: int, cause: ChoiceCause = "best") -> Decision:
    """Return the decision for an option."""
    option = snapshot.options[chosen]
    policy = snapshot.terms.policy
    reason = _chosen_reason(snapshot, chosen, cause)
    return Decision(
        option.route,
        option.provider,
        option.model,
        LazySequence(len(snapshot.options), lambda index: _candidate(snapshot, index, chosen, reason)),
        reason,
        policy,
        snapshot.request.task,
        snapshot.alternative(chosen),
        LazyAlternatives(snapshot, chosen)
        if isinstance(policy.fallbacks, bool) or not snapshot.ranked
        else (),
        cause == "tried",
        snapshot.request.prompt_tokens,
        chosen,
        snapshot.ranked and bool(snapshot.request.held),
    )


def no_route_error(snapshot: DecisionSnapshot) -> NoRouteError:
    """Return the error for a policy that no option meets, with the reason for each and the way out."""
    candidates = tuple(_candidate(snapshot, index, None, "") for index in range(len(snapshot.options)))
    if not candidates:
        message = "there are no routes to choose among; list some under `candidates` in specclient.toml"
    else:
        lines = "".join(f"\n  {c.route}: {c.reason}" for c in candidates)
        way_out = _way_out(snapshot.terms, candidates)
        message = f"none of {len(candidates)} candidates satisfies the policy:{lines}{way_out}"
    decision = Decision(
        chosen="",
        provider="",
        model="",
        candidates=candidates,
        reason=message,
        policy=snapshot.policy,
        task=snapshot.request.task,
    )
    return NoRouteError(message, decision=decision)


def _candidate(snapshot: DecisionSnapshot, index: int, chosen: int | None, reason: str) -> Candidate:
    """Return an option with its figures and its verdict.

    Args:
        chosen: the option that was taken, None if none was.
        reason: why that one.
    """
    option, estimate, evaluation = (
        snapshot.options[index],
        snapshot.estimates[index],
        snapshot.evaluation(index),
    )
    call, draft = evaluation.call, option.client_side_draft
    figures = snapshot.terms.figures(call)
    if index == chosen:
        verdict: CandidateVerdict = "chosen"
    elif evaluation.excluded is not None:
        verdict, reason = evaluation.excluded
    elif evaluation.violations:
        verdict = "refused"
        reason = "; ".join(_refusal(snapshot.terms, each) for each in evaluation.violations)
    else:
        verdict, reason = "left", _left_reason(snapshot, index, chosen, figures)
    if draft is not None and index != chosen:
        reason = f"{draft.strategy.kind} with {draft.route}: {reason}"
    acceptance = estimate.acceptance_rate if draft is None else None
    strategy = option.strategy if draft is None else draft.strategy
    latency_range_s = None
    if call.latency_s is not None and call.latency_limit_s is not None:
        latency_range_s = call.latency_s * estimate.p10_factor, call.latency_limit_s
    return Candidate(
        route=option.route,
        cost=call.exact_cost_usd,
        latency_s=call.latency_s,
        acceptance_rate=option.accepted(snapshot.request.task) if acceptance is None else acceptance,
        evidence=estimate.calls,
        verdict=verdict,
        reason=reason,
        cost_range=snapshot.cost_range(index),
        ttft_s=call.ttft_s,
        ttft_limit_s=call.ttft_limit_s,
        latency_range_s=latency_range_s,
        tokens_per_verification=estimate.tokens_per_verification,
        strategy=None if strategy is None else strategy.kind,
        draft=option.draft if draft is None else draft.route,
        depth=option_depth(option, estimate, snapshot.request),
        failure_rate=estimate.failure_rate if estimate.calls else None,
        quality=option.quality,
        violations=evaluation.violations,
        figures=figures,
    )


def _chosen_reason(snapshot: DecisionSnapshot, chosen: int, cause: ChoiceCause) -> str:
    """Return why an option was taken. Every decision has it, so it uses nothing slow."""
    terms, option, estimate = snapshot.terms, snapshot.options[chosen], snapshot.estimates[chosen]
    call = snapshot.prediction(chosen)
    text = _prediction(terms, call, estimate)
    if option.client_side_draft is not None:
        text = f"{option.client_side_draft.strategy.kind} with {option.client_side_draft.route}, {text}"
    if cached := round(snapshot.request.cached(option.route)):
        text += f"; {cached} tokens of the prompt are expected in its cache"
    if cause == "tried":
        return f"tried to learn more about it, as it may be the best: {text}"
    if cause == "nearest":
        return f"nearest to the limits of time, which no candidate is expected to keep: {text}"
    if cause == "given":
        return f"named by the caller, before its fallbacks: {text}"
    if len(snapshot.options) == 1:
        return f"the only candidate: {text}"
    percentile = terms.policy.percentile
    if snapshot.share is not None and snapshot.share != percentile:
        text += (
            f"; {snapshot.share:.3g} of its calls need to keep the limits, "
            f"as more than {percentile:.3g} of all do"
        )
    if estimate.failure_rate > MOSTLY_FAILING:
        return f"every remaining route fails more often than not: {text}"
    if len(terms.weights) > 1:
        return f"best by {terms.goal}: {text}"
    goal = terms.weights[0][0]
    if goal.predict(call) is None:
        return f"{text}; no candidate's {goal.title} is known, so the given order decides"
    return f"{goal.best}: {text}"


def _left_reason(snapshot: DecisionSnapshot, index: int, chosen: int | None, figures: Figures) -> str:
    """Return why an option that met every limit was left for the chosen one."""
    terms, evaluation = snapshot.terms, snapshot.evaluation(index)
    text = _prediction(terms, evaluation.call, snapshot.estimates[index], figures)
    if chosen is None or not snapshot.ranked:
        return f"{text}; a fallback"
    best = snapshot.evaluation(chosen)
    if evaluation.rank[0] > best.rank[0]:
        if snapshot.estimates[index].limited:
            return f"{text}: its rate limit has refused a call and is expected to refuse the next one"
        if evaluation.rank[0] > 1:
            return f"{text}: {snapshot.estimates[index].failure_rate:.0%} of its calls fail"
        limits = " and ".join(
            f"{each.bound.field} {each.limit:g}" for each in terms.bounds if each.bound.unknown == "rank_last"
        )
        return f"{text}: not known to keep {limits}, unlike the chosen route"
    if best.rank[1]:
        return f"{text}; after the chosen route in the given order"
    if evaluation.rank[1]:
        return f"{text}: cannot win against a known {terms.goal}"
    if evaluation.score == best.score:
        return f"{text}: no better than the chosen route"
    if evaluation.score < best.score:
        return f"{text}: better, but the chosen route is explored"
    times = f", {evaluation.score / best.score:.3g}× the chosen route" if best.score else ""
    return f"{text}{times}"


def _prediction(
    terms: PolicyTerms, call: CandidateCall, estimate: RouteEstimate, figures: Figures | None = None
) -> str:
    """Return the predicted values and the evidence behind them.

    Args:
        figures: the call's value of every criterion, if they are known already.
    """
    texts, known = [], False
    for criterion in terms.explained:
        value = criterion.predict(call) if figures is None else figures[criterion.name]
        if value is None:
            texts.append(f"{criterion.title} unknown")
        else:
            known = True
            texts.append(f"predicted {criterion.text(value)}")
    if not known:
        return "nothing is known about it yet"
    measured = f"{estimate.calls} calls measured" if estimate.calls != 1 else "1 call measured"
    return f"{', '.join(texts)} ({measured})"


def _refusal(terms: PolicyTerms, violation: ConstraintViolation) -> str:
    """Return which limit is not kept, and by how much."""
    limited, limit = terms.bound(violation.constraint), format_number(violation.limit)
    criterion, bound = limited.criterion, limited.bound
    if violation.predicted is None or violation.over is None:
        way_out = f"; {bound.way_out}" if bound.way_out else ""
        return f"its {criterion.title} is unknown, so {bound.field} {limit} cannot be kept{way_out}"
    predicted, over = criterion.text(violation.predicted), criterion.text(violation.over)
    if bound.at_most:
        return f"predicted {predicted} exceeds {bound.field} {limit} by {over}"
    return f"{criterion.title} {predicted} is below {bound.field} {limit} by {over}"


def _way_out(terms: PolicyTerms, candidates: Sequence[Candidate]) -> str:
    """Return the least change of limits that makes a candidate acceptable, an empty text if none does."""
    near = [
        (
            sum((b.over or 0.0) / (b.limit or b.predicted or 1.0) for b in c.violations),
            sum(b.over or 0.0 for b in c.violations),  # decides if limits are 0
            place,
            c,
        )
        for place, c in enumerate(candidates)
        if c.violations and all(b.over is not None for b in c.violations)
    ]
    if not near:
        return ""
    nearest = min(near)[-1]
    changes = " and ".join(
        f"{b.constraint} from {format_number(b.limit)} to {_sufficient_limit(terms, b)}"
        for b in nearest.violations
        if b.predicted is not None
    )
    return f"\nnearest is {nearest.route}: change {changes}, or add candidates"


def _sufficient_limit(terms: PolicyTerms, violation: ConstraintViolation) -> str:
    """Return a limit that the prediction keeps, rounded to three digits on the safe side."""
    predicted = Decimal(repr(violation.predicted))
    rounded = Decimal(f"{predicted:.3g}")
    step = Decimal(1).scaleb(rounded.adjusted() - 2)
    if terms.bound(violation.constraint).bound.at_most:
        rounded += step if rounded < predicted else 0
    else:
        rounded -= step if rounded > predicted else 0
    return plain_decimal(rounded)
