"""Token counts and engine telemetry of a response, summed over its choices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from specclient.types.backend import EngineTelemetry
from specclient.types.usage import CompletionTokensDetails, CompletionUsage, PromptTokensDetails, Speculation
from specclient_local.loading.configured_models import ConfiguredModel

if TYPE_CHECKING:
    from specclient_local.engine.answer import Generation


class AnswerTotals:
    """Sums over the choices of a response, in memory that does not depend on their number.

    Args:
        choices: number of choices per prompt.
    """

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._prompt = self._cached = self._completion = 0
        self._engine_s = 0.0
        self._speculation: Speculation | None = None

    def add(self, index: int, generation: Generation) -> None:
        """Add a choice.

        Each prompt counts once, with the cached tokens that its first choice found.

        Args:
            index: the choice's index; the choices of the first prompt come first.
            generation: the whole answer.
        """
        if index % self._choices == 0:
            self._prompt += generation.prompt_tokens
            self._cached += generation.cached_tokens
        self._completion += len(generation.token_ids)
        self._engine_s += generation.timings.engine_s
        own, sum_ = generation.speculation, self._speculation
        self._speculation = own if sum_ is None else _add_speculation(sum_, own)

    def usage(self) -> CompletionUsage:
        """Return the token counts.

        ``completion_tokens`` does not include rejected prediction tokens, unlike OpenAI's: the target has
        processed but not generated them, and local tokens are not billed.
        """
        speculation, details = self._speculation, None
        if speculation is not None and speculation.predicted_accepted is not None:
            details = CompletionTokensDetails(
                accepted_prediction_tokens=speculation.predicted_accepted,
                rejected_prediction_tokens=speculation.predicted_rejected or 0,
            )
        return CompletionUsage(
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            total_tokens=self._prompt + self._completion,
            completion_tokens_details=details,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._cached),
        )

    def telemetry(self, configured: ConfiguredModel) -> EngineTelemetry:
        """Return speculation and engine seconds.

        Args:
            configured: the model that generated the choices.
        """
        speculation = self._speculation
        method = None if speculation is None else speculation.method
        return EngineTelemetry(speculation, self._engine_s, configured.pair_name(method))


def _add_speculation(one: Speculation, other: Speculation) -> Speculation:
    """Sum the counts of two speculations and recompute their rates, without the counts per position."""
    drafted, accepted, steps, predicted, rejected = (
        _sum((getattr(one, name), getattr(other, name)))
        for name in ("drafted", "accepted", "steps", "predicted_accepted", "predicted_rejected")
    )
    return Speculation(
        method=one.method if one.method == other.method else None,
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=accepted / drafted if drafted and accepted is not None else None,
        mean_accepted_length=1 + accepted / steps if steps and accepted is not None else None,
        predicted_accepted=predicted,
        predicted_rejected=rejected,
        source=one.source,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
