"""Routing decisions: the candidates, the chosen one, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal

from specclient.runtime.frozen_dict import FrozenDict
from specclient.runtime.lazy_sequence import LazySequence
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy
from specclient.types.strategy import Strategy, StrategyKind

CandidateVerdict = Literal["chosen", "left", "refused", "unavailable"]


@dataclass(frozen=True, slots=True)
class ConstraintViolation:
    """A limit that a candidate does not keep.

    Attributes:
        constraint: the limit's name in :class:`Policy`.
        limit: the limit, in the unit of its criterion.
        predicted: the predicted value, None if unknown; ``over``: the distance to the limit.
    """

    constraint: str
    limit: float
    predicted: float | None = None
    over: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One route, as the policy evaluated it.

    Attributes:
        route: ``provider/model``.
        cost: predicted dollars, None if no price is known; ``cost_range``: the range of 80 % of calls.
        ttft_s, latency_s: median predicted seconds to the first token and to the whole answer; None without
            any evidence or prior.
        latency_range_s: the seconds within which 10 % and the policy's ``percentile`` of calls finish.
        ttft_limit_s: the seconds within which the policy's ``percentile`` of calls get the first token.
        acceptance_rate: the learned share of accepted draft tokens; None if unknown.
        tokens_per_verification: expected tokens of each verification by the target, None if unknown.
        strategy: how speculation runs on it from this side, None if that is left to the endpoint.
        draft: the route that drafts for it, if another one does.
        depth: the best number of tokens to draft at a time, 0 if speculation would be slower, None if that is
            left to the endpoint.
        failure_rate: the learned share of failed calls.
        quality: its tier, from 0 to 1; None if unknown.
        evidence: the number of finished calls behind the prediction; 0 means priors only.
        verdict: whether it was chosen, left for another one, refused, or unavailable.
        reason: why, in words.
        violations: the limits that it does not keep.
        figures: the predicted value of every criterion, by its name; None if unknown.
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
    violations: tuple[ConstraintViolation, ...] = ()
    figures: Mapping[str, float | None] = FrozenDict()


@dataclass(frozen=True, slots=True)
class Alternative:
    """A route that may serve a call instead of the chosen one.

    Attributes:
        route: ``provider/model``; ``provider`` and ``model``: its parts as they are sent.
        strategy: how speculation runs on it; None leaves that to the endpoint.
        depth: as in :class:`Candidate`.
        patience_s: the seconds within which 95 % of its calls get the first token, None if unknown. A hedge
            is sent after this time.
        latency_limit_s: the seconds within which 95 % of its calls finish, None if unknown.
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
    """The route of a call. A named model is a decision with one candidate.

    Attributes:
        chosen: ``provider/model``, or the model's name as given if a base URL owns the names.
        provider: the endpoint's name.
        model: the name sent to it.
        candidates: all routes that were considered, the chosen one included.
        reason: why this one, in words.
        policy: the policy, None for a named model.
        task: the kind of the prompt, None for a named model.
        taken: the chosen route in the form of an alternative, None for a named model.
        alternatives: the routes that may serve the call instead, best first. If the policy has no fallbacks,
            they serve only as a hedge or for a session.
        explored: whether it was chosen to learn more about it.
        chosen_index: the index of the chosen candidate.
        prompt_tokens: the prompt's tokens, estimated from its size in bytes; None for a named model.
        counts_caches: whether the scores count what routes hold of the prompt in their caches; False where
            they hold none of it, or where the routes are taken in the caller's order.
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
    chosen_index: int = field(default=0, repr=False)
    counts_caches: bool = field(default=False, repr=False)

    def moved(self, to: Alternative, *, reason: str, left: str) -> Decision:
        """Return the decision for another route.

        Args:
            to: the route to take.
            reason: why that one is chosen; ``left``: why the earlier choice is left.
        """
        changed: dict[tuple[str, StrategyKind | None], tuple[CandidateVerdict, str]] = {
            _key(self.first): ("left", left),
            _key(to): ("chosen", reason),
        }

        def candidate(index: int) -> Candidate:
            each = self.candidates[index]
            verdict, why = changed.get((each.route, each.strategy), (each.verdict, each.reason))
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
        """The chosen route in the form of an alternative."""
        return self.taken or Alternative(self.chosen, self.provider, self.model)

    def shortened(self, most: int) -> Sequence[Candidate]:
        """Return at most ``most`` candidates, always with the chosen one; making each takes time."""
        if len(self.candidates) <= most:
            return self.candidates
        if self.chosen_index < most:
            return self.candidates[:most]
        return (*self.candidates[: most - 1], self.candidates[self.chosen_index])


def _key(route: Alternative) -> tuple[str, StrategyKind | None]:
    """Return the key that identifies a route's candidate."""
    return route.route, None if route.strategy is None else route.strategy.kind
