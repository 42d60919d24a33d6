"""How a caller wants speculation played from this side of the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from specclient.errors import ConfigurationError

StrategyKind = Literal["auto", "direct", "prediction", "prefill", "remote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Who drafts, and what becomes of the draft.

    Attributes:
        kind: ``direct`` sends the request as it is; ``prediction`` sends a draft's answer as ``prediction``,
            which the endpoint verifies; ``prefill`` commits the beginning of a draft's answer and lets the
            target continue, which is no verification; ``remote`` lets the target score a draft token by
            token, which is exact for greedy decoding; ``auto`` takes the best that the endpoint is known to
            expose.
        draft: the model that drafts, ``provider/model``; None where the caller brings the prediction.
        depth: tokens drafted at a time; None adapts it. For ``prefill``, the most tokens committed.
        confidence: ``prefill`` commits a draft only if it is agreed with at least so far, from 0 to 1: the
            geometric mean of the probabilities the draft gave its own tokens, or, of a draft that tells
            none, the share of a short answer of the target's that is the draft's, too.

    Raises:
        ConfigurationError: for any other value, named with what is allowed.
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
