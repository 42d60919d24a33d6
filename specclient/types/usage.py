"""What a call consumed: tokens by kind, what speculation did, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from specclient.types.completion_usage import CompletionTokensDetails, CompletionUsage, PromptTokensDetails

__all__ = [
    "NANO",
    "CompletionTokensDetails",
    "CompletionUsage",
    "Cost",
    "PromptTokensDetails",
    "ReportedCharge",
    "Speculation",
    "Usage",
]

NANO = Decimal(10) ** 9


@dataclass(frozen=True, slots=True)
class ReportedCharge:
    """What an answer says that its vendor charges for it.

    Attributes:
        field: of the usage that says it: vendors differ, and the same name need not mean the same.
        dollars: US dollars, as they are told.
    """

    field: str
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, in one vocabulary for all providers. ``None`` means unknown, never zero.

    Attributes:
        prompt: all prompt tokens, those read from a cache included.
        completion: all generated tokens that are billed: visible, reasoning and rejected prediction.
        cached: the part of ``prompt`` read from a cache.
        cache_write: the part of ``prompt`` written to a cache; ``cache_write_1h``: the part of that which is
            kept for an hour, and costs more (Anthropic, "Prompt caching").
        reasoning: the part of ``completion`` that was reasoning.
        accepted_prediction, rejected_prediction: of a ``prediction`` sent with the request. The
            rejected ones are inside ``completion`` (OpenAI, "Predicted Outputs").
        audio_prompt, image_prompt: the parts of ``prompt`` that were sound and images, which some models
            charge otherwise than text; ``audio_completion``, ``image_completion``: of ``completion``.
        searches: of the web, which the model asked the vendor for.
        estimated: the counts are ours, not the provider's.
        charges: what the answer says that it costs, in each of the fields that say so.
    """

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    accepted_prediction: int | None = None
    rejected_prediction: int | None = None
    estimated: bool = False
    cache_write_1h: int | None = None
    audio_prompt: int | None = None
    image_prompt: int | None = None
    audio_completion: int | None = None
    image_completion: int | None = None
    searches: int | None = None
    charges: tuple[ReportedCharge, ...] = ()


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculative decoding did for one answer. ``None`` means unknown, never zero.

    Attributes:
        method: how drafts were made (``draft``, ``plain``, ``prediction``, …).
        drafted: draft tokens verified by the target.
        accepted: those of them that the target kept.
        steps: verification passes of the target.
        acceptance_rate: accepted / drafted.
        mean_accepted_length: tokens won by one verification, the target's own token included:
            1 + accepted / steps.
        per_position: for draft position i, the share of rounds which drafted that far whose token i
            (and so all before it) was kept.
        accepted_per_position: for each draft position, how often its token was kept.
        predicted_accepted, predicted_rejected: tokens of a user's ``prediction``; another quantity
            than draft-model tokens, so kept apart.
        source: where the figures come from: ``engine``, ``metrics delta`` (all that a server did in the
            meantime), or the dialects of its answer that told them (``vllm``, ``openai``, …).
    """

    method: str | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    per_position: tuple[float, ...] | None = None
    predicted_accepted: int | None = None
    predicted_rejected: int | None = None
    source: str | None = None
    accepted_per_position: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call cost, in US dollars.

    Attributes:
        total: exact; ``None`` where no price is known (an unpriced call is not a free one).
        by_kind: ``input``, ``cached_input``, ``cache_write``, ``cache_write_1h``, ``output``,
            ``reasoning``, ``audio_input``, ``image_input``, ``audio_output``, ``image_output`` (where they
            have a price of their own), ``rejected_prediction``, ``request``, ``web_search``, ``engine``,
            ``electricity``, or ``reported`` for a sum the vendor tells: they sum to ``total``.
        source: where the price comes from, in words.
        estimated: the price or the token counts behind it are our estimate.
    """

    total: Decimal | None = None
    by_kind: Mapping[str, Decimal] = field(default_factory=dict)
    source: str = "unpriced"
    estimated: bool = False

    @property
    def nano(self) -> int | None:
        """``total`` in whole nano-dollars, as the ledger keeps it."""
        return None if self.total is None else int((self.total * NANO).to_integral_value())
