"""Priors: assumptions about routes before their first call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specclient.types.criterion import PromptTask

__all__ = ["ACCEPTANCE", "PRIORS", "RoutePrior"]


@dataclass(frozen=True, slots=True)
class RoutePrior:
    """The assumptions about a route before its first call.

    Attributes:
        ttft_s: seconds to the first token.
        token_s: seconds per token.
        cost_ratio: seconds of a draft token over those of a pass of the target; None without a draft.
    """

    ttft_s: float
    token_s: float
    cost_ratio: float | None = None


#: The probability α that a target accepts a drafted token of a model of its family, by task: within the
#: figures of Leviathan et al. (arXiv 2211.17192, table 2: 0.53 to 0.75), in the order of Spec-Bench's tasks,
#: where text that repeats its input has the highest acceptance.
ACCEPTANCE: Mapping[PromptTask, float] = MappingProxyType(
    {"chat": 0.6, "code": 0.75, "document": 0.7, "long_context": 0.65}
)

#: The bundled pair on two CPU cores, as ``benchmarks/pair.py`` measured it (a round of 4 drafts takes 1.47
#: plain steps). Other routes have no prior: the speed of a hosted model or of a user's checkpoint can be
#: anything.
PRIORS: Mapping[str, RoutePrior] = MappingProxyType(
    {
        "local/demo": RoutePrior(ttft_s=0.02, token_s=0.0026, cost_ratio=0.12),
        "local/demo-target": RoutePrior(ttft_s=0.02, token_s=0.0048),
    }
)
