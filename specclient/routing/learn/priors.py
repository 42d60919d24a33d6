"""Priors: assumptions about routes before their first call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from specclient.types.criterion import PromptTask

__all__ = ["ACCEPTANCE", "PRIORS", "PriorSource", "RoutePrior"]


class PriorSource(Protocol):
    """A source of priors by route, such as a mapping."""

    def get(self, route: str, /) -> RoutePrior | None:
        """Return the prior of a route, None without one."""


class RoutePrior(NamedTuple):
    """The assumptions about a route before its first call.

    Attributes:
        ttft_s: seconds to the first token of a short prompt.
        token_s: seconds per token.
        cost_ratio: seconds of a draft token over those of a pass of the target; None without a draft.
        prompt_token_s: seconds per prompt token until the first token, None where unknown.
        calls: the number of calls that it weighs as much as; 0 for a guess that the first call replaces.
        similar: whether it is taken from the calls of similar routes, so that nothing is known of this one.
    """

    ttft_s: float
    token_s: float
    cost_ratio: float | None = None
    prompt_token_s: float | None = None
    calls: int = 0
    similar: bool = False

    def first_s(self, prompt_tokens: int | None) -> float:
        """Return the seconds to the first token of a prompt."""
        return self.ttft_s + (self.prompt_token_s or 0.0) * (prompt_tokens or 0)


#: The probability α that a target accepts a drafted token of a model of its family, by task: within the
#: figures of Leviathan et al. (arXiv 2211.17192, table 2: 0.53 to 0.75), in the order of Spec-Bench's tasks,
#: where text that repeats its input has the highest acceptance.
ACCEPTANCE: Mapping[PromptTask, float] = MappingProxyType(
    {"chat": 0.6, "code": 0.75, "document": 0.7, "long_context": 0.65}
)

#: The bundled pair on two CPU cores, as ``benchmarks/pair.py`` measured it (a round of 4 drafts takes 1.47
#: plain steps). :mod:`specclient.routing.prior_catalogue` has those of other routes.
PRIORS: Mapping[str, RoutePrior] = MappingProxyType(
    {
        "local/demo": RoutePrior(ttft_s=0.02, token_s=0.0026, cost_ratio=0.12),
        "local/demo-target": RoutePrior(ttft_s=0.02, token_s=0.0048),
    }
)
