"""Turn what a decision was made of into its words: every candidate's figures, and why it was taken or left.

They are worked out when somebody reads them, from a snapshot that nothing changes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, overload

from specclient.errors import NoRouteError
from specclient.routing.choose.constraints import MOSTLY_FAILING, broken, excluded, score, trust_rank
from specclient.routing.choose.route_options import (
    CallPrediction,
    RouteOption,
    RouteRequest,
    exact_cost,
    option_depth,
    predict_call,
)
from specclient.routing.learn.route_estimate import RouteEstimate
from specclient.runtime.lazy_sequence import LazySequence
from specclient.types.route import (
    Alternative,
    Candidate,
    CandidateVerdict,
    ConstraintViolation,
    Decision,
    Policy,
)

__all__ = ["CandidateEvaluation", "DecisionSnapshot", "dollars", "no_route_error", "seconds"]

ChoiceCause = Literal["best", "tried", "given"]

_UNKNOWN = RouteEstimate()


@dataclass(frozen=True, slots=True)
class CandidateEvaluation:
    """What a policy makes of an option.

    Attributes:
        refused: what keeps it out whatever it would cost, and how; ``broken``: the limits it does not keep.
        found, cost: its figures and exact dollars.
        key: how far it is trusted, and whether what is made small is unknown of it.
        score: what is made small, or as much of it as is known; ``second``: what ties are broken by.
    """

    excluded: tuple[CandidateVerdict, str] | None
    broken: tuple[ConstraintViolation, ...]
    found: CallPrediction
    cost: Decimal | None
    key: tuple[int, bool]
    score: float
    second: float

    @property
    def open(self) -> bool:
        """Whether it may be taken."""
        return self.excluded is None and not self.broken


@dataclass(frozen=True, slots=True, eq=False)
class DecisionSnapshot:
    """All that one decision was made of.

    Attributes:
        estimates: of each option; ``drafting``: of what drafts for it, where it is a play.
        ranked: whether the best is taken; False takes the first in the given order.
        share: of calls that keep what the estimates give as limits, None for the policy's percentile.
    """

    policy: Policy
    options: tuple[RouteOption, ...]
    estimates: tuple[RouteEstimate, ...]
    drafting: tuple[RouteEstimate | None, ...]
    asked: RouteRequest
    ranked: bool = True
    share: float | None = None
    _known: dict[int, CandidateEvaluation] = field(default_factory=dict)

    def judged(self, index: int) -> CandidateEvaluation:
        """Return what the policy makes of an option."""
        found = self._known.get(index)
        if found is None:
            found = self._known[index] = self._judge(index)
        return found

    def could_beat(self, index: int, least: float) -> bool:
        """Tell whether an option could well score less once more is known of it, and be taken.

        It then keeps the limits of time, too, if it takes no longer than it could well take.
        """
        policy, option, estimate = self.policy, self.options[index], self.estimates[index]
        judged = self.judged(index)
        if judged.excluded is not None or (policy.weights[0] and option.tariff is None):
            return False  # a price is not learned by calling
        found = judged.found
        hope = found.hopeful(estimate.hopeful)
        hoped = score(policy, found.dollars or 0.0, hope.seconds or 0.0, 0.0) or 0.0
        return hoped < least and not (judged.broken and broken(policy, option, estimate, hope, judged.cost))

    def fits(self, index: int) -> bool:
        """Tell whether prompt and answer fit into an option's context."""
        return _overflow(self.options[index], self.asked) is None

    def first_of(self, members: Sequence[int], sums: Sequence[float], least: float) -> int:
        """Return, of equal ones, the place of the one that is best by the other quantity, then by order."""
        tied = [place for place, found in enumerate(sums) if found == least]
        return min(tied, key=lambda place: (self.judged(members[place]).second, members[place]))

    def alternative(self, index: int) -> Alternative:
        """Return an option as it is carried out."""
        option, estimate = self.options[index], self.estimates[index]
        strategy = option.strategy if option.played is None else option.played.strategy
        n = self.asked.length.middle
        timed = estimate.ttft_s is not None and estimate.token_s is not None and option.played is None
        return Alternative(
            option.route,
            option.provider,
            option.model,
            strategy,
            option_depth(option, estimate, self.asked),
            estimate.patience_s if timed else None,
            estimate.slow * (estimate.ttft_s + estimate.token_s * n) if timed else None,  # type: ignore[operator]
        )

    def order(self) -> list[int]:
        """Return the options that may be taken, best first."""
        judged = [(index, self.judged(index)) for index in range(len(self.options))]
        left = [(index, each) for index, each in judged if each.open]
        if self.ranked:
            left.sort(key=lambda pair: (pair[1].key, pair[1].score, pair[1].second, pair[0]))
        return [index for index, _ in left]

    def decision(self, chosen: int, why: ChoiceCause = "best") -> Decision:
        """Return the decision for an option."""
        option = self.options[chosen]
        reason = self._reason(chosen, why)
        return Decision(
            option.route,
            option.provider,
            option.model,
            LazySequence(len(self.options), lambda index: self._candidate(index, chosen, reason)),
            reason,
            self.policy,
            self.asked.task,
            self.alternative(chosen),
            _LazyAlternatives(self, chosen)
            if isinstance(self.policy.fallbacks, bool) or not self.ranked
            else (),
            why == "tried",
            self.asked.prompt_tokens,
            chosen,
        )

    def candidates(self) -> tuple[Candidate, ...]:
        """Return every option with its figures, and why it was left; for a decision that took none."""
        return tuple(self._candidate(index, None, "") for index in range(len(self.options)))

    def others(self, chosen: int) -> tuple[Alternative, ...]:
        """Return who may serve the call in the chosen one's place, best first, one of each route."""
        seen = {self.options[chosen].route}
        others = []
        for index in self.order():
            route = self.options[index].route
            if route not in seen:  # in one way or another, it would fail alike
                seen.add(route)
                others.append(self.alternative(index))
        return tuple(others)

    def _judge(self, index: int) -> CandidateEvaluation:
        policy, asked = self.policy, self.asked
        option, estimate, drafting = self.options[index], self.estimates[index], self.drafting[index]
        out = excluded(policy, option)
        found = predict_call(option, estimate, asked, drafting)
        cost = exact_cost(option, estimate, asked, asked.length.middle, drafting)
        if out is None and (too_long := _overflow(option, asked)):
            out = "refused", too_long
        if out is None and option.played is not None and option.played.greedy and not asked.greedy:
            out = "unavailable", "only greedy completions can be verified token by token: pass temperature=0"
        rate = estimate.failure_rate
        total = score(policy, found.dollars, found.seconds, rate)
        by_cost, by_time = policy.weights
        known = score(policy, found.dollars or 0.0, found.seconds or 0.0, rate) or 0.0
        second = found.dollars if by_time and not by_cost else found.seconds
        key = trust_rank(policy, estimate, found.slow_s, found.first_slow_s), total is None
        missed = () if out is not None else broken(policy, option, estimate, found, cost)
        return CandidateEvaluation(
            out,
            missed,
            found,
            cost,
            key,
            known if total is None else total,
            float("inf") if second is None else second,
        )

    def _candidate(self, index: int, chosen: int | None, reason: str) -> Candidate:
        option, estimate, judged = self.options[index], self.estimates[index], self.judged(index)
        asked, found, drafting = self.asked, judged.found, self.drafting[index]
        if index == chosen:
            verdict: CandidateVerdict = "chosen"
        elif judged.excluded is not None:
            verdict, reason = judged.excluded
        elif judged.broken:
            verdict, reason = "refused", "; ".join(_missed(each) for each in judged.broken)
        else:
            verdict, reason = "left", self._left(index, chosen)
        if option.played is not None and index != chosen:
            reason = f"{option.played.strategy.kind} with {option.played.route}: {reason}"
        ends = [
            exact_cost(option, estimate, asked, tokens, drafting)
            for tokens in (asked.length.low, asked.length.high)
        ]
        low, high = ends
        played = option.played
        acceptance = estimate.acceptance_rate if played is None else None
        strategy = option.strategy if played is None else played.strategy
        return Candidate(
            route=option.route,
            cost=judged.cost,
            latency_s=found.seconds,
            acceptance_rate=option.accepted(asked.task) if acceptance is None else acceptance,
            evidence=estimate.calls,
            verdict=verdict,
            reason=reason,
            cost_range=None if low is None or high is None else (low, high),
            ttft_s=found.first_s,
            ttft_limit_s=found.first_slow_s,
            latency_range_s=None
            if found.seconds is None or found.slow_s is None
            else (found.seconds * estimate.early, found.slow_s),
            tokens_per_verification=estimate.tokens_per_verification,
            strategy=None if strategy is None else strategy.kind,
            draft=option.draft if played is None else played.route,
            depth=option_depth(option, estimate, asked),
            failure_rate=estimate.failure_rate if estimate.calls else None,
            quality=option.quality,
            broken=judged.broken,
        )

    def _reason(self, chosen: int, why: ChoiceCause) -> str:
        """Say why an option was taken; in every decision, so without anything that takes long."""
        policy, option, estimate = self.policy, self.options[chosen], self.estimates[chosen]
        found = predict_call(option, estimate, self.asked, self.drafting[chosen])
        told = _prediction(found, estimate)
        if option.played is not None:
            told = f"{option.played.strategy.kind} with {option.played.route}, {told}"
        if why == "tried":
            return f"tried to learn more of it, as it could turn out to be the best: {told}"
        if why == "given":
            return f"named by the caller, before its fallbacks: {told}"
        minimize = policy.minimize
        known = found.dollars if minimize == "cost" else found.seconds if minimize == "latency" else 0.0
        if len(self.options) == 1:
            return f"the only candidate: {told}"
        if self.share is not None and self.share != policy.percentile:
            needed = f"{self.share:.3g} of its calls need to keep the limits"
            told += f"; {needed}, as more than {policy.percentile:.3g} of all do"
        if estimate.failure_rate > MOSTLY_FAILING:
            return f"all that is left fails more often than not: {told}"
        if known is None:
            return f"{told}; no candidate's {minimize} is known, so the given order decides"
        if minimize == "cost":
            return f"cheapest: {told}"
        return f"fastest: {told}" if minimize == "latency" else f"best by cost and latency: {told}"

    def _left(self, index: int, chosen: int | None) -> str:
        """Say why an option that met every limit was left for the chosen one."""
        judged, policy = self.judged(index), self.policy
        told = _prediction(judged.found, self.estimates[index])
        if chosen is None or not self.ranked:
            return f"{told}; a fallback"
        best = self.judged(chosen)
        if judged.key[0] > best.key[0]:
            if judged.key[0] > 1:
                return f"{told}: {self.estimates[index].failure_rate:.0%} of its calls fail"
            names = [n for n in ("max_latency_s", "max_ttft_s") if getattr(policy, n) is not None]
            limits = " and ".join(f"{name} {getattr(policy, name):g}" for name in names)
            return f"{told}: not known to keep {limits}, as the chosen is"
        if best.key[1]:
            return f"{told}; after the chosen in the given order"
        if judged.key[1]:
            what = policy.minimize if isinstance(policy.minimize, str) else "cost and latency"
            return f"{told}: cannot win against a known {what}"
        if judged.score == best.score:
            return f"{told}: no better than the chosen"
        if judged.score < best.score:
            return f"{told}: better, and known well"
        times = f", {judged.score / best.score:.3g}× the chosen" if best.score else ""
        return f"{told}{times}"


class _LazyAlternatives(Sequence[Alternative]):
    """The alternatives of a decision, put in order when somebody asks for them."""

    __slots__ = ("_chosen", "_made", "_snapshot")

    def __init__(self, snapshot: DecisionSnapshot, chosen: int) -> None:
        self._snapshot: DecisionSnapshot | None = snapshot
        self._chosen = chosen
        self._made: tuple[Alternative, ...] = ()

    def _read(self) -> tuple[Alternative, ...]:
        snapshot = self._snapshot
        if snapshot is not None:
            self._made = snapshot.others(self._chosen)
            self._snapshot = None  # and what it was made of may go
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
        return isinstance(other, _LazyAlternatives | tuple) and self._read() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._read(),)


def no_route_error(snapshot: DecisionSnapshot) -> NoRouteError:
    """Return the error for a policy that no option meets: what stood against each, and the way out."""
    candidates = snapshot.candidates()
    if not candidates:
        message = "there are no routes to choose among; list some under `candidates` in specclient.toml"
    else:
        lines = "".join(f"\n  {c.route}: {c.reason}" for c in candidates)
        message = f"none of {len(candidates)} candidates satisfies the policy:{lines}{_way_out(candidates)}"
    decision = Decision(
        chosen="",
        provider="",
        model="",
        candidates=candidates,
        reason=message,
        policy=snapshot.policy,
        task=snapshot.asked.task,
    )
    return NoRouteError(message, decision=decision)


def _way_out(candidates: Sequence[Candidate]) -> str:
    """Name the least change of limits by which a candidate would do, nothing where none would help."""
    near = [
        (
            sum((b.over or 0.0) / (b.limit or b.predicted or 1.0) for b in c.broken),
            sum(b.over or 0.0 for b in c.broken),  # where a limit is 0, all miss it by their whole
            place,
            c,
        )
        for place, c in enumerate(candidates)
        if c.broken and all(b.over is not None for b in c.broken)
    ]
    if not near:
        return ""
    nearest = min(near)[-1]
    changes = " and ".join(
        f"{b.constraint} from {_short(b.limit)} to {_rounded(b)}"
        for b in nearest.broken
        if b.predicted is not None
    )
    return f"\nnearest is {nearest.route}: change {changes}, or add candidates"


def _rounded(missed: ConstraintViolation) -> str:
    """Return a limit that would do, to three digits and on the safe side."""
    predicted = Decimal(repr(missed.predicted))
    rounded = Decimal(f"{predicted:.3g}")
    step = Decimal(1).scaleb(rounded.adjusted() - 2)
    if missed.constraint == "min_quality":
        rounded -= step if rounded > predicted else 0
    else:
        rounded += step if rounded < predicted else 0
    return _plain(rounded)


def _overflow(option: RouteOption, asked: RouteRequest) -> str | None:
    prompt = round(asked.prompt_tokens * option.scale)
    if option.context is None or prompt + asked.room <= option.context:
        return None
    room = f", with room asked for {asked.room} more" if asked.room else ""
    return f"its context holds {option.context} tokens, and the prompt has about {prompt}{room}"


def _missed(each: ConstraintViolation) -> str:
    """Say which limit is not kept, and by how much."""
    limit = _short(each.limit)
    if each.predicted is None or each.over is None:
        if each.constraint == "min_quality":
            return f"its quality is unknown, so min_quality {limit} cannot be kept; set it under [quality]"
        return (
            f"its cost is unknown, so {each.constraint} {limit} cannot be kept; set its price under [prices]"
        )
    if each.constraint == "min_quality":
        return f"quality {_short(each.predicted)} is below min_quality {limit} by {_short(each.over)}"
    unit = dollars if each.constraint == "max_cost_usd" else seconds
    over = unit(Decimal(repr(each.over))) if unit is dollars else seconds(each.over)
    told = unit(Decimal(repr(each.predicted))) if unit is dollars else seconds(each.predicted)
    return f"predicted {told} exceeds {each.constraint} {limit} by {over}"


def _prediction(found: CallPrediction, estimate: RouteEstimate) -> str:
    if found.dollars is None and found.seconds is None:
        return "nothing is known of it yet"
    cost = "cost unknown" if found.dollars is None else f"predicted ${_short(found.dollars)}"
    latency = "latency unknown" if found.seconds is None else f"predicted {_short(found.seconds)} s"
    measured = f"{estimate.calls} calls measured" if estimate.calls != 1 else "1 call measured"
    return f"{cost}, {latency} ({measured})"


def dollars(amount: Decimal) -> str:
    """Return an amount to three significant digits: ``$0.00042``."""
    return f"${_plain(Decimal(f'{amount:.3g}') if amount else amount)}"


def seconds(duration: float) -> str:
    """Return a duration to three significant digits: ``4.2 s``."""
    return f"{_short(duration)} s"


def _short(value: float) -> str:
    text = f"{value:.3g}"
    return _plain(Decimal(text)) if "e" in text else text


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
