"""Decides whether a prediction is worth sending: the time it saves against the cost of rejected tokens."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal

from specclient.runtime.forks import register_fork_reset

#: The acceptance rate that is assumed for a pair of models without history.
PRIOR = 0.5
_PRIOR_TOKENS = 50
#: The time that an accepted token saves, and that a rejected token adds, as shares of the time of one decoded
#: token: a pass over several tokens takes longer than a pass over one, and a mostly rejected prediction makes
#: an answer slower (Azure, "Predicted outputs"). Assumed values, because vendors publish neither.
_SAVED = 0.8
_WASTED = 0.25
#: Seconds per token of a large hosted model, where no measurement is available.
TOKEN_S = 0.02
#: The value of one saved second, in dollars, for a caller without a policy.
SECOND_USD = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class PredictionValue:
    """Whether a prediction is sent, and why."""

    send: bool
    reason: str


def worth_sending(
    predicted_tokens: int,
    *,
    acceptance: float | None = None,
    output_price: Decimal | None = None,
    rejected_billed: bool | None = None,
    token_s: float = TOKEN_S,
    second_usd: Decimal | None = SECOND_USD,
) -> PredictionValue:
    """Decide whether a prediction is worth the cost of its rejected tokens.

    Args:
        predicted_tokens: length of the prediction.
        acceptance: expected acceptance rate, 0 to 1; None for :data:`PRIOR`.
        output_price: dollars per generated token; None where unknown: then only time decides.
        rejected_billed: whether the vendor bills rejected tokens (OpenAI and Azure do, at the output rate;
            Mistral and Fireworks do not); None for unknown, which counts as True.
        token_s: seconds per token of the target without a prediction.
        second_usd: dollars that a saved second is worth: 0 if only cost matters, None if only latency does.
    """
    rate = PRIOR if acceptance is None else acceptance
    accepted = rate * predicted_tokens
    rejected = predicted_tokens - accepted
    saved_s = token_s * (_SAVED * accepted - _WASTED * rejected)
    expected = f"{rate:.0%} of {predicted_tokens} predicted tokens expected to be accepted"
    if predicted_tokens < 1 or saved_s <= 0:
        return PredictionValue(False, f"{expected}, which saves no time")
    if rejected_billed is False:
        return PredictionValue(True, f"{expected}, and rejected tokens are not billed")
    if output_price is None:
        return PredictionValue(True, f"{expected}; the price is not known")
    extra = output_price * Decimal(repr(rejected))
    if second_usd is not None and extra > second_usd * Decimal(repr(saved_s)):
        return PredictionValue(
            False, f"{expected}: saving {saved_s:.2f} s is not worth ${extra:.6f} for rejected tokens"
        )
    return PredictionValue(
        True, f"{expected}: saving {saved_s:.2f} s is worth ${extra:.6f} for rejected tokens"
    )


class PredictionHistory:
    """Acceptance of earlier predictions by pair of models, kept while the client lives."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[float, float]] = {}
        self._lock = threading.Lock()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def note(self, pair: tuple[str, str], accepted: int, rejected: int) -> None:
        """Add the tokens of one prediction; earlier counts are weighted by 0.9 each time.

        Args:
            pair: the source of the prediction, and the model that verified it.
            accepted, rejected: tokens.
        """
        with self._lock:
            before = self._counts.get(pair, (0.0, 0.0))
            self._counts[pair] = (before[0] * 0.9 + accepted, before[1] * 0.9 + rejected)

    def acceptance(self, pair: tuple[str, str]) -> float | None:
        """Return a pair's acceptance rate, smoothed towards :data:`PRIOR`; None without history."""
        counts = self._counts.get(pair)
        if counts is None:
            return None
        accepted, rejected = counts
        return (accepted + PRIOR * _PRIOR_TOKENS) / (accepted + rejected + _PRIOR_TOKENS)
