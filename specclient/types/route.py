"""How an endpoint is chosen: the user's policy, the candidates, and the decision with its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, get_args

from specclient.errors import ConfigurationError
from specclient.runtime.lazy_sequence import LazySequence
from specclient.types.strategy import Strategy, StrategyKind

Minimize = Literal["cost", "latency"]
PromptTask = Literal["chat", "code", "document", "long_context"]
CandidateVerdict = Literal["chosen", "left", "refused", "unavailable"]
Constraint = Literal["max_cost_usd", "max_latency_s", "max_ttft_s", "min_quality", "deadline_s"]

#: The share of routed calls that may be hedged where a policy says ``hedge=True``.
HEDGED_SHARE = 0.05
#: The share of routed calls that may go where more has to be learned, unless a policy says otherwise.
EXPLORED_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Policy:
    """What a caller wants of a route.

    Attributes:
        minimize: what is made small among the candidates that meet the limits: ``cost``, ``latency``, or what
            a dollar and a second weigh beside each other: with ``{"cost": 1, "latency": 0.002}`` a second
            is worth $0.002.
        max_cost_usd: most dollars the call may cost, as predicted.
        max_latency_s: most seconds until the whole answer is there, kept by ``percentile`` of calls.
        max_ttft_s: most seconds until its first token, likewise.
        percentile: the share of calls that must keep the limits of time, above 0 and below 1. It is promised
            of the policy's calls on the whole: while more of them keep them, a single one may go where it is
            up to twice as likely to miss them.
        min_quality: least quality tier, from 0 to 1; a model without a known one does not meet it.
        allow: names or prefixes (``local/``, ``openai/gpt-4.1``) a candidate must match; empty allows all.
        deny: names or prefixes a candidate must not match.
        local_only: whether nothing may leave this machine: engines in this process, and endpoints with a
            loopback address, of which it is not known what they send on.
        task: what kind of prompt this is; ``auto`` tells it from the prompt.
        deadline_s: seconds for the call with all its tries, hedges and fallbacks; a call's own wins.
        fallbacks: who serves the call where the chosen route fails: True for the other candidates that meet
            the policy, best first; False for nobody; or routes, in this order.
        hedge: the share of calls that may be sent to a second candidate where the first is slower than it
            nearly always was (:data:`HEDGED_SHARE` for True, none for False).
        explore: the share of calls that may go to a candidate that could turn out to be the best one, where
            too little is known of it. One that was left for being slow or failing, or was never called, is
            tried once in a while beside; 0 leaves all of it. Limits of dollars and of quality always hold;
            those of time hold for what such a call could well take. Where nobody is expected to keep them,
            whoever could, and is nearest, is called: else nobody would ever be found to be fast again.
        strategy: how speculation is played on the chosen route, for calls that bring none of their own.

    Raises:
        ConfigurationError: for any other value, named with what is allowed.
    """

    minimize: Minimize | Mapping[str, float] = "cost"
    max_cost_usd: float | Decimal | None = None
    max_latency_s: float | None = None
    max_ttft_s: float | None = None
    percentile: float = 0.95
    min_quality: float | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    local_only: bool = False
    task: PromptTask | Literal["auto"] = "auto"
    deadline_s: float | None = None
    fallbacks: bool | tuple[str, ...] = True
    hedge: bool | float = False
    explore: float = EXPLORED_SHARE
    strategy: Strategy | StrategyKind | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimize", _minimized(self.minimize))
        for name in ("max_cost_usd", "max_latency_s", "max_ttft_s", "deadline_s"):
            _check_number(name, getattr(self, name))
        for name in ("min_quality", "explore"):
            _check_number(name, getattr(self, name), most=1)
        if isinstance(self.percentile, bool) or not (
            isinstance(self.percentile, int | float) and 0 < self.percentile < 1
        ):
            raise ConfigurationError(
                f"policy.percentile is {self.percentile!r}; it must be a number above 0 and below 1"
            )
        if self.task not in (*get_args(PromptTask), "auto"):
            allowed = ", ".join((*get_args(PromptTask), "auto"))
            raise ConfigurationError(f"policy.task is {self.task!r}; it must be one of {allowed}")
        if not isinstance(self.local_only, bool):
            raise ConfigurationError(f"policy.local_only is {self.local_only!r}; it must be true or false")
        if not isinstance(self.hedge, bool):
            _check_number("hedge", self.hedge, most=1)
        if isinstance(self.strategy, str):
            object.__setattr__(self, "strategy", Strategy(kind=self.strategy))
        elif not isinstance(self.strategy, Strategy | None):
            raise ConfigurationError(
                f"policy.strategy is {self.strategy!r}; it must be a Strategy or the name of one"
            )
        for name in ("allow", "deny"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if not isinstance(self.fallbacks, bool):
            object.__setattr__(self, "fallbacks", _names("fallbacks", self.fallbacks))

    def __hash__(self) -> int:
        """Policies are keys of what was worked out for them."""
        minimize = self.minimize if isinstance(self.minimize, str) else tuple(sorted(self.minimize.items()))
        others = (getattr(self, f.name) for f in fields(self) if f.name != "minimize")
        return hash((minimize, *others))

    @property
    def weights(self) -> tuple[float, float]:
        """What a dollar and a second weigh in the quantity that is made small."""
        if isinstance(self.minimize, str):
            return (1.0, 0.0) if self.minimize == "cost" else (0.0, 1.0)
        return self.minimize.get("cost", 0.0), self.minimize.get("latency", 0.0)

    @property
    def falls_back(self) -> bool:
        """Whether others are asked where the chosen route fails."""
        return self.fallbacks is not False

    @property
    def hedged_share(self) -> float:
        """The share of calls that may be hedged."""
        return HEDGED_SHARE * self.hedge if isinstance(self.hedge, bool) else self.hedge


def _minimized(given: Any) -> Minimize | Mapping[str, float]:
    """Return what is to be made small, checked; weights can no longer be changed."""
    if isinstance(given, str):
        if given not in get_args(Minimize):
            raise ConfigurationError(
                f"policy.minimize is {given!r}; it must be 'cost', 'latency', or their weights, such as "
                '{"cost": 1, "latency": 0.002}'
            )
        return given  # type: ignore[return-value]  # checked above
    if not isinstance(given, Mapping) or not given or given.keys() - set(get_args(Minimize)):
        raise ConfigurationError(
            f"policy.minimize is {given!r}; it must be 'cost', 'latency', or their weights, such as "
            '{"cost": 1, "latency": 0.002}'
        )
    for name, weight in given.items():
        _check_number(f"minimize.{name}", weight)
        if weight is None or math.isinf(weight):
            raise ConfigurationError(f"policy.minimize.{name} is {weight!r}; it must be a finite number")
    if not any(given.values()):
        raise ConfigurationError("policy.minimize weighs nothing; give cost or latency a weight above 0")
    return MappingProxyType({name: float(weight) for name, weight in given.items()})


def _check_number(name: str, value: Any, *, most: float = math.inf) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ConfigurationError(f"policy.{name} is {value!r}; it must be a number")
    if math.isnan(value) or not 0 <= value <= most:
        bound = "0 or more" if math.isinf(most) else f"from 0 to {most:g}"
        raise ConfigurationError(f"policy.{name} is {value!r}; it must be {bound}")


def _names(name: str, value: Any) -> tuple[str, ...]:
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(v, str) for v in value)
    ):
        raise ConfigurationError(f"policy.{name} is {value!r}; it must be a list of route names or prefixes")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class ConstraintViolation:
    """A limit that a candidate does not keep.

    Attributes:
        constraint: the limit's name in :class:`Policy`.
        limit: what it allows; ``predicted``: what is expected; ``over``: by how much it is missed. Dollars,
            seconds or quality; ``predicted`` and ``over`` are None where nothing is known.
    """

    constraint: Constraint
    limit: float
    predicted: float | None = None
    over: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One route as the policy saw it.

    Attributes:
        route: ``provider/model``.
        cost: predicted dollars, None where no price is known; ``cost_range``: where 80 % of calls end.
        ttft_s, latency_s: predicted seconds to the first token and to the whole answer, medians; None without
            any evidence or prior.
        latency_range_s: the seconds that 10 % and the policy's ``percentile`` of calls keep.
        ttft_limit_s: the seconds to the first token that the policy's ``percentile`` of calls keep.
        acceptance_rate: of its drafts, as learned; None where unknown.
        tokens_per_verification: expected of each pass of the target, None where unknown.
        strategy: how speculation is played on it from this side, None where that is left to the endpoint.
        draft: the route that drafts for it, where another one does.
        depth: tokens drafted at a time that serve it best, 0 where speculation would lose, None where that is
            the endpoint's business.
        failure_rate: share of its calls that fail, as learned.
        quality: its tier, from 0 to 1; None where unknown.
        evidence: finished calls behind the prediction; 0 means priors only.
        verdict: what became of it.
        reason: why, in words.
        broken: the limits it does not keep.
    """

    route: str
    cost: Decimal | None = None
    latency_s: float | None = None
    acceptance_rate: float | None = None
    evidence: int = 0
    verdict: CandidateVerdict = "left"
    reason: str = ""
    cost_range: tuple[Decimal, Decimal] | None = None
    ttft_s: float | None = None
    ttft_limit_s: float | None = None
    latency_range_s: tuple[float, float] | None = None
    tokens_per_verification: float | None = None
    strategy: StrategyKind | None = None
    draft: str | None = None
    depth: int | None = None
    failure_rate: float | None = None
    quality: float | None = None
    broken: tuple[ConstraintViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """A route that may serve a call in the place of the chosen one.

    Attributes:
        route: ``provider/model``; ``provider`` and ``model``: its parts as they are sent.
        strategy: how speculation is played on it; None leaves that to the endpoint.
        depth: as in :class:`Candidate`.
        patience_s: seconds that 95 % of its calls take to their first token, None where unknown: what a hedge
            waits for.
        latency_limit_s: seconds that 95 % of its calls take in all, None where unknown.
    """

    route: str
    provider: str
    model: str
    strategy: Strategy | None = None
    depth: int | None = None
    patience_s: float | None = None
    latency_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The route a call takes. A model that was named is a decision with one candidate.

    Attributes:
        chosen: ``provider/model``, or the model's name as given where a base URL owns the names.
        provider: the endpoint's name.
        model: the name sent to it.
        candidates: all that were considered, the chosen one included.
        reason: why this one, in words.
        policy: what was asked for, None for a named model.
        task: what the prompt was taken for, None for a named model.
        taken: the chosen route as its own alternative, None for a named model.
        alternatives: who may serve the call instead, best first; where the policy has no fallbacks, only as a
            hedge or for a session.
        explored: whether it was chosen to learn more of it.
        place: the chosen one's among the candidates.
        prompt_tokens: of the prompt, estimated from its bytes to compare routes by; None for a named model.
    """

    chosen: str
    provider: str
    model: str
    candidates: Sequence[Candidate] = ()
    reason: str = ""
    policy: Policy | None = None
    task: PromptTask | None = None
    taken: Alternative | None = field(default=None, repr=False)
    alternatives: Sequence[Alternative] = field(default=(), repr=False)
    explored: bool = False
    prompt_tokens: int | None = None
    place: int = field(default=0, repr=False)

    def moved(self, to: Alternative, *, reason: str, left: str) -> Decision:
        """Return the decision with another route in the chosen one's place.

        Args:
            reason: why that one; ``left``: why no longer the one that was chosen.
        """
        told: dict[tuple[str, StrategyKind | None], tuple[CandidateVerdict, str]] = {
            _key(self.first): ("left", left),
            _key(to): ("chosen", reason),
        }

        def candidate(index: int) -> Candidate:
            each = self.candidates[index]
            verdict, why = told.get((each.route, each.strategy), (each.verdict, each.reason))
            return replace(each, verdict=verdict, reason=why)

        return replace(
            self,
            chosen=to.route,
            provider=to.provider,
            model=to.model,
            candidates=LazySequence(len(self.candidates), candidate),
            reason=reason,
            taken=to,
        )

    @property
    def first(self) -> Alternative:
        """The chosen route, as it is carried out."""
        return self.taken or Alternative(self.chosen, self.provider, self.model)

    def shortened(self, most: int) -> Sequence[Candidate]:
        """Return so many of the candidates at most, the chosen one among them: each takes time to be told."""
        if len(self.candidates) <= most:
            return self.candidates
        if self.place < most:
            return self.candidates[:most]
        return (*self.candidates[: most - 1], self.candidates[self.place])


def _key(route: Alternative) -> tuple[str, StrategyKind | None]:
    """Return what a route's candidate is known by."""
    return route.route, None if route.strategy is None else route.strategy.kind
