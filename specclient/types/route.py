"""How an endpoint is chosen: the user's policy, the candidates, and the decision with its reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from specclient.errors import ConfigurationError
from specclient.types.strategy import Kind, Strategy

Minimize = Literal["cost", "latency"]
Verdict = Literal["chosen", "left", "refused", "unavailable"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a caller wants of a route.

    Attributes:
        minimize: what is made small among the candidates that meet the limits.
        max_cost_usd: most dollars the call may cost, as predicted.
        max_latency_s: most seconds until the whole answer is there, as predicted.
        allow: names or prefixes (``local/``, ``openai/gpt-4.1``) a candidate must match; empty allows all.
        deny: names or prefixes a candidate must not match.
        strategy: how speculation is played on the chosen route, for calls that bring none of their own.

    Raises:
        ConfigurationError: for any other value, named with what is allowed.
    """

    minimize: Minimize = "cost"
    max_cost_usd: float | Decimal | None = None
    max_latency_s: float | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    strategy: Strategy | Kind | None = None

    def __post_init__(self) -> None:
        if self.minimize not in ("cost", "latency"):
            raise ConfigurationError(f"policy.minimize is {self.minimize!r}; it must be 'cost' or 'latency'")
        for name in ("max_cost_usd", "max_latency_s"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                raise ConfigurationError(f"policy.{name} is {value!r}; it must be a number")
            if math.isnan(value) or value < 0:
                raise ConfigurationError(f"policy.{name} is {value!r}; it must be 0 or more")
        if isinstance(self.strategy, str):
            object.__setattr__(self, "strategy", Strategy(kind=self.strategy))
        elif not isinstance(self.strategy, Strategy | None):
            raise ConfigurationError(
                f"policy.strategy is {self.strategy!r}; it must be a Strategy or the name of one"
            )
        for name in ("allow", "deny"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(v, str) for v in value):
                raise ConfigurationError(
                    f"policy.{name} is {value!r}; it must be a list of route names or prefixes"
                )
            object.__setattr__(self, name, tuple(value))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One route as the policy saw it.

    Attributes:
        route: ``provider/model``.
        cost: predicted dollars, None where no price is known.
        latency_s: predicted seconds to the whole answer, None without any evidence.
        acceptance_rate: of its drafts, as last measured; None where unknown.
        evidence: finished calls behind the prediction; 0 means priors only.
        verdict: what became of it.
        reason: why, in words.
    """

    route: str
    cost: Decimal | None = None
    latency_s: float | None = None
    acceptance_rate: float | None = None
    evidence: int = 0
    verdict: Verdict = "left"
    reason: str = ""


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
    """

    chosen: str
    provider: str
    model: str
    candidates: tuple[Candidate, ...] = ()
    reason: str = ""
    policy: Policy | None = None
