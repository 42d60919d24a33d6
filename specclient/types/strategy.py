"""Client-side speculation strategies, as the caller chooses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from specclient.errors import ConfigurationError

StrategyKind = Literal["auto", "direct", "prediction", "prefill", "remote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Which model drafts, and how the draft is used.

    Attributes:
        kind: ``direct`` sends the request unchanged; ``prediction`` sends the draft's answer as
            ``prediction``, which the endpoint verifies; ``prefill`` commits the beginning of the draft's
            answer and lets the target continue, without verification; ``remote`` lets the target score
            draft tokens, which is exact for greedy decoding; ``auto`` chooses the best kind that the
            endpoint is known to support.
        draft: the model that drafts, ``provider/model``; None if the caller supplies the prediction.
        depth: tokens drafted at a time, None to adapt it; for ``prefill``, the maximum of committed tokens.
        confidence: the least confidence, from 0 to 1, at which ``prefill`` commits a draft: the geometric
            mean of the draft's probabilities of its own tokens; for a draft without log-probabilities, the
            share of a short answer by the target that agrees with the draft.

    Raises:
        ConfigurationError: a value is invalid; the message names it and what is allowed.
    """

    kind: StrategyKind = "auto"
    draft: str | None = None
    depth: int | None = None
    confidence: float = 0.8

    def __post_init__(self) -> None:
        if self.kind not in get_args(StrategyKind):
            raise ConfigurationError(
                f"strategy is {self.kind!r}; it must be one of {', '.join(get_args(StrategyKind))}"
            )
        if self.depth is not None and (
            isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1
        ):
            raise ConfigurationError(
                f"strategy.depth is {self.depth!r}; it must be a whole number, 1 or more"
            )
        if isinstance(self.confidence, bool) or not (
            isinstance(self.confidence, int | float) and 0 <= self.confidence <= 1
        ):
            raise ConfigurationError(
                f"strategy.confidence is {self.confidence!r}; it must be a number from 0 to 1"
            )
        if self.draft is not None and (not isinstance(self.draft, str) or not self.draft):
            raise ConfigurationError(
                f"strategy.draft is {self.draft!r}; it must be a model's name, such as 'local/demo'"
            )
