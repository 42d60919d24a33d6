"""Turn what is expected of a prediction into whether it is worth sending; pure, but for the history."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal

#: The share of a prediction that is taken to be accepted where none was sent before.
PRIOR = 0.5
_PRIOR_TOKENS = 50
#: What a verified token saves of the time of a decoded one, and what a rejected one adds to it: a pass over
#: several tokens costs more than one over a single token, and a mostly rejected prediction makes an answer
#: slower (Azure, "Predicted outputs"). Assumed, as vendors tell neither.
_SAVED = 0.8
_WASTED = 0.25
#: Seconds a large hosted model takes for a token, where nothing was measured.
TOKEN_S = 0.02
#: What a second is worth to a caller who does not say.
SECOND_USD = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class PredictionValue:
    """Whether a prediction is sent, and why, in words."""

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
    """Decide whether a prediction is worth what its rejected tokens cost.

    Args:
        predicted_tokens: its length.
        acceptance: the share expected to be accepted, 0 to 1; None takes :data:`PRIOR`.
        output_price: dollars for one generated token; None where unknown, and time alone decides.
        rejected_billed: whether the vendor bills rejected tokens (OpenAI and Azure do, at the output rate;
            Mistral and Fireworks do not); None, unknown, counts as yes.
        token_s: seconds the target takes for a token by itself.
        second_usd: what a saved second is worth; 0 for a caller who minds cost alone, None for one who minds
            latency alone.
    """
    rate = PRIOR if acceptance is None else acceptance
    accepted = rate * predicted_tokens
    rejected = predicted_tokens - accepted
    saved_s = token_s * (_SAVED * accepted - _WASTED * rejected)
    expected = f"{rate:.0%} of {predicted_tokens} predicted tokens expected to be accepted"
    if predicted_tokens < 1 or saved_s <= 0:
        return PredictionValue(False, f"{expected}: that saves no time")
    if rejected_billed is False:
        return PredictionValue(True, f"{expected}, and rejected ones are not billed")
    if output_price is None:
        return PredictionValue(True, f"{expected}, at a price that is not known")
    extra = output_price * Decimal(repr(rejected))
    if second_usd is not None and extra > second_usd * Decimal(repr(saved_s)):
        return PredictionValue(
            False, f"{expected}: saving {saved_s:.2f} s is not worth ${extra:.6f} for rejected ones"
        )
    return PredictionValue(
        True, f"{expected}: saving {saved_s:.2f} s is worth ${extra:.6f} for rejected ones"
    )


class PredictionHistory:
    """How predictions have fared, by what made and what verified them; kept while the client lives."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[float, float]] = {}
        self._lock = threading.Lock()

    def note(self, pair: tuple[str, str], accepted: int, rejected: int) -> None:
        """Note one prediction's tokens; older ones fade as newer ones come."""
        with self._lock:
            before = self._counts.get(pair, (0.0, 0.0))
            self._counts[pair] = (before[0] * 0.9 + accepted, before[1] * 0.9 + rejected)

    def acceptance(self, pair: tuple[str, str]) -> float | None:
        """Return the share that was accepted, drawn towards :data:`PRIOR` while little was seen; or None."""
        counts = self._counts.get(pair)
        if counts is None:
            return None
        accepted, rejected = counts
        return (accepted + PRIOR * _PRIOR_TOKENS) / (accepted + rejected + _PRIOR_TOKENS)
