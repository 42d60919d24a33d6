"""The routing policy: what to minimize, the limits to keep, and where calls may go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from specclient.errors import ConfigurationError
from specclient.runtime.frozen_dict import FrozenDict
from specclient.types.criterion import CRITERIA, PromptTask
from specclient.types.strategy import Strategy, StrategyKind

#: The share of routed calls that may be hedged with ``hedge=True``.
HEDGED_SHARE = 0.05
#: The share of routed calls that may go to a little-known route, unless a policy says otherwise.
EXPLORED_SHARE = 0.05
#: The calls that a policy's percentile holds for.
PercentileScope = Literal["policy", "task", "length"]
_NO_LIMITS: FrozenDict[str, float] = FrozenDict()


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules that a route is chosen by.

    The limits ``max_cost_usd``, ``max_latency_s``, ``max_ttft_s``, ``min_quality`` and ``deadline_s`` are
    fields; ``limits`` holds those of all other criteria in :data:`specclient.types.criterion.CRITERIA`.
    :meth:`limit` returns either.

    Attributes:
        minimize: the quantity to minimize among the candidates that meet the limits: the name of a criterion,
            such as ``cost`` or ``latency``, or the weight of a unit of each. With
            ``{"cost": 1, "latency": 0.002}``, a second is worth $0.002.
        max_cost_usd: the greatest predicted cost of the call, in dollars.
        max_latency_s: maximum seconds to the complete response, met by ``percentile`` of calls.
        max_ttft_s: maximum seconds to the first token, met by ``percentile`` of calls.
        percentile: the share of calls that must keep the limits of time, above 0 and below 1. It is a promise
            about all calls of the policy together: while more of them keep the limits, a single call may go
            to a route that is up to twice as likely to miss them, and one that costs more than the average up
            to three times. A call that costs less goes to a route that is less likely to miss them, if there
            is one.
        percentile_per: the calls that the promise holds for: ``policy`` for all calls of the policy together,
            ``task`` for those of each kind of prompt, ``length`` for those of each class of prompt lengths
            (powers of four, from 1,024 tokens). Calls with different limits, or of different difficulty, then
            do not use up each other's permitted misses.
        min_quality: the lowest quality, from 0 to 1: the mean score of a route's answers to such prompts
            (``client.feedback``), which starts from the model's tier. A model without either does not meet
            it.
        allow: route names or prefixes (``local/``, ``openai/gpt-4.1``) that a candidate must match; empty
            allows all.
        deny: route names or prefixes that a candidate must not match.
        local_only: whether calls must stay on this machine: on engines in this process, and on endpoints with
            a loopback address. Whether such an endpoint forwards calls is not known.
        task: the kind of prompt; ``auto`` classifies the prompt.
        deadline_s: seconds for the call with all its attempts, hedges and fallbacks. A call's own deadline
            wins.
        fallbacks: the routes that serve the call when the chosen one fails: True for the other candidates
            that meet the policy, best first; False for none; or these routes, in this order.
        hedge: the share of calls that may be sent to a second candidate when the first is slower than usual
            (:data:`HEDGED_SHARE` for True, none for False).
        explore: the share of calls that may go to a candidate of which little is known and which could turn
            out to be the best. In addition, a route that was left as slow or failing, or was never called, is
            tried once in a while; 0 turns both off. Limits of cost and quality always hold; limits of time
            hold for the time that such a call could well take. If no candidate is expected to keep the limits
            of time, the nearest one that could keep them is called; otherwise none could ever be found to be
            fast again. If none could, and most recent calls of the policy kept the limits, the one that
            misses them by the least is called, and late ones are also fallbacks; with 0, such a call is
            refused.
        strategy: how speculation runs on the chosen route, for calls without a strategy of their own.
        limits: further limits, by the field of their bound: ``{"max_co2_g": 0.5}``.

    Raises:
        ConfigurationError: any other value; the message names it and what is allowed.
    """

    minimize: str | Mapping[str, float] = "cost"
    max_cost_usd: float | Decimal | None = None
    max_latency_s: float | None = None
    max_ttft_s: float | None = None
    percentile: float = 0.95
    percentile_per: PercentileScope = "policy"
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
    limits: Mapping[str, float] = _NO_LIMITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimize", _checked_minimize(self.minimize))
        self._set_limits()
        _check_number("explore", self.explore, most=1)
        if isinstance(self.percentile, bool) or not (
            isinstance(self.percentile, int | float) and 0 < self.percentile < 1
        ):
            raise ConfigurationError(
                f"policy.percentile is {self.percentile!r}; it must be a number above 0 and below 1"
            )
        if self.percentile_per not in get_args(PercentileScope):
            allowed = ", ".join(map(repr, get_args(PercentileScope)))
            raise ConfigurationError(
                f"policy.percentile_per is {self.percentile_per!r}; it must be one of {allowed}"
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

    def _set_limits(self) -> None:
        """Check all limits; those in ``limits`` that have a field of their own move there."""
        if not isinstance(self.limits, Mapping):
            raise ConfigurationError(
                f'policy.limits is {self.limits!r}; it must be a mapping, such as {{"max_cost_usd": 0.01}}'
            )
        bounds, others = CRITERIA.bounds, {}
        for name, value in self.limits.items():
            if name not in bounds:
                raise ConfigurationError(f"policy.limits has {name!r}; it may have {', '.join(bounds)}")
            if name in _POLICY_FIELDS:
                object.__setattr__(self, name, value)
            elif value is not None:
                others[name] = value
        object.__setattr__(self, "limits", FrozenDict(others) if others else _NO_LIMITS)
        for name, (_, bound) in bounds.items():
            _check_number(name, self.limit(name), most=bound.greatest)

    def limit(self, name: str) -> float | Decimal | None:
        """Return the limit of a bound by its field, such as ``max_cost_usd``; None if it is not limited."""
        if name in _POLICY_FIELDS:
            return getattr(self, name)  # type: ignore[no-any-return]
        return self.limits.get(name)

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of a unit of each criterion in the quantity to minimize, by its name."""
        return {self.minimize: 1.0} if isinstance(self.minimize, str) else self.minimize

    @property
    def falls_back(self) -> bool:
        """Whether other routes serve the call when the chosen one fails."""
        return self.fallbacks is not False

    @property
    def hedged_share(self) -> float:
        """The share of calls that may be hedged."""
        return HEDGED_SHARE * self.hedge if isinstance(self.hedge, bool) else self.hedge


#: The fields of a policy, without ``limits`` itself.
_POLICY_FIELDS = frozenset(Policy.__slots__) - {"limits"}


def _checked_minimize(minimize: Any) -> str | Mapping[str, float]:
    """Return the name of the criterion to minimize, or the weights of several, as an immutable mapping."""
    allowed = CRITERIA.weighable
    if isinstance(minimize, str) and minimize in allowed:
        return minimize
    if not isinstance(minimize, Mapping) or not minimize or minimize.keys() - set(allowed):
        raise ConfigurationError(
            f"policy.minimize is {minimize!r}; it must be {', '.join(map(repr, allowed))}, or their weights, "
            'such as {"cost": 1, "latency": 0.002}'
        )
    for name, weight in minimize.items():
        _check_number(f"minimize.{name}", weight)
        if weight is None or math.isinf(weight):
            raise ConfigurationError(f"policy.minimize.{name} is {weight!r}; it must be a finite number")
    if not any(minimize.values()):
        raise ConfigurationError(
            f"policy.minimize weighs nothing; give {' or '.join(allowed)} a weight above 0"
        )
    return FrozenDict({name: float(weight) for name, weight in minimize.items()})


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
