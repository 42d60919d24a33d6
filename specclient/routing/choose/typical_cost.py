"""The typical cost of a call: the mean over its options, by which calls are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specclient.routing.choose.route_options import RouteOption
from specclient.types.criterion import COST
from specclient.types.policy import Policy

__all__ = ["TypicalCost"]


class TypicalCost(NamedTuple):
    """Dollars of a call as ``base + by_prompt * prompt_tokens + by_answer * completion_tokens``."""

    base: float
    by_prompt: float
    by_answer: float

    @classmethod
    def of(cls, policy: Policy, options: Sequence[RouteOption]) -> TypicalCost | None:
        """Return the mean over the priced options; None without any, or if the policy does not weigh cost."""
        tariffs = [(each.tariff, each.scale) for each in options if each.tariff is not None]
        if not tariffs or not policy.weights.get(COST.name):
            return None
        count = len(tariffs)
        return cls(
            sum(tariff.call for tariff, _ in tariffs) / count,
            sum(tariff.prompt * scale for tariff, scale in tariffs) / count,
            sum(tariff.output for tariff, _ in tariffs) / count,
        )

    def dollars(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the dollars of a call."""
        return self.base + self.by_prompt * prompt_tokens + self.by_answer * completion_tokens
