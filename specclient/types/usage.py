"""The consumption of a call: tokens by kind, speculation, and cost."""

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
    "UsageUnit",
]

NANO = Decimal(10) ** 9


@dataclass(frozen=True, slots=True)
class ReportedCharge:
    """A charge that a response reports.

    Attributes:
        field: the field of ``usage`` with the charge. Vendors use one name with different meanings.
        dollars: US dollars, as reported.
    """

    field: str
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class UsageUnit:
    """Something other than tokens that a vendor bills.

    Attributes:
        kind: ``audio_second`` (heard), ``character`` (spoken), ``page`` and ``annotated_page`` (read),
            ``search_unit`` (of reranking), ``file_search``, ``code_execution``, ``trained_token``,
            ``storage_gb_day``; ``code_container MEMORY``; ``image QUALITY SIZE`` and
            ``video_second SIZE``, as the request has them.
        amount: 0 or more.
        names: the ids of what several calls may use and is billed once, such as containers.
    """

    kind: str
    amount: Decimal
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, with the same names for all providers. ``None`` means unknown, never zero.

    Attributes:
        prompt: all prompt tokens, including those read from a cache.
        completion: all generated tokens that are billed: visible, reasoning, and rejected prediction tokens.
        cached: the part of ``prompt`` read from a cache.
        cache_write: the part of ``prompt`` written to a cache; ``cache_write_1h``: the part of
            ``cache_write`` that is kept for an hour at a higher price (Anthropic, "Prompt caching").
        reasoning: the part of ``completion`` that was reasoning.
        accepted_prediction, rejected_prediction: tokens of the request's ``prediction``. Rejected ones are
            part of ``completion`` (OpenAI, "Predicted Outputs").
        audio_prompt, image_prompt: the parts of ``prompt`` that are audio and images, which some models price
            differently from text; ``audio_completion``, ``image_completion``: the same of ``completion``.
        cached_audio, cached_image: the parts of ``cached`` that are audio and images; they are parts of
            ``audio_prompt`` and ``image_prompt``, too (OpenAI, "Realtime API", usage of a response).
        searches: the number of web searches that the vendor ran for the model.
        estimated: whether the counts are our estimate, not the provider's.
        charges: the charges that the response reports.
        traffic: the service tier or kind of traffic that the response says it was (OpenAI and others,
            ``service_tier``; Vertex AI, ``trafficType``; Amazon Bedrock, ``serviceTier``), which may have a
            price of its own; None if it says none.
        units: what is billed by other units than tokens.
        region: where the call was served, as the answer or the endpoint's address names it; some regions
            have a price of their own (Anthropic, ``inference_geo``; OpenAI, "Data residency").
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
    cached_audio: int | None = None
    cached_image: int | None = None
    searches: int | None = None
    charges: tuple[ReportedCharge, ...] = ()
    traffic: str | None = None
    units: tuple[UsageUnit, ...] = ()
    region: str | None = None


@dataclass(frozen=True, slots=True)
class Speculation:
    """Figures of speculative decoding for one answer. ``None`` means unknown, never zero.

    Attributes:
        method: how drafts were made (``draft``, ``plain``, ``prediction``, …).
        drafted: draft tokens verified by the target.
        accepted: draft tokens accepted by the target.
        steps: verification passes of the target.
        acceptance_rate: accepted / drafted.
        mean_accepted_length: tokens per verification, including the target's own token:
            1 + accepted / steps.
        per_position: for each draft position, the share of the rounds that drafted this far in which its
            token, and so all tokens before it, was accepted.
        accepted_per_position: for each draft position, the number of accepted tokens.
        predicted_accepted, predicted_rejected: tokens of the request's ``prediction``, which are not counted
            as draft-model tokens.
        source: the source of the figures: ``engine``, ``metrics delta`` (all activity of a server during the
            call), or the telemetry dialects of the response (``vllm``, ``openai``, …).
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
    """The cost of one call in US dollars.

    Attributes:
        total: the exact sum; ``None`` if no price is known (an unpriced call is not free).
        by_kind: ``input``, ``cached_input``, ``cache_write``, ``cache_write_1h``, ``output``,
            ``reasoning``, ``audio_input``, ``image_input``, ``cached_audio_input``, ``cached_image_input``,
            ``audio_output``, ``image_output`` (if they have their own price), ``rejected_prediction``,
            ``request``, ``web_search``, ``engine``, ``electricity``, the first words of the kinds of
            :class:`UsageUnit`, or ``reported`` for a sum that the vendor reports. They sum to ``total``.
        source: the source of the price, in words.
        estimated: whether the price or the token counts are our estimate.
        tier: the service tier of the price, in lower case: the one that the answer names, else the requested
            one; ``standard`` for any name of the standard tier, None if neither names one.
        cache_saved: the dollars that the provider's prompt cache saved: what its tokens would have cost
            without it, less their cost. Negative if writing cost more; None if no tokens had a cache price.
    """

    total: Decimal | None = None
    by_kind: Mapping[str, Decimal] = field(default_factory=dict)
    source: str = "unpriced"
    estimated: bool = False
    tier: str | None = None
    cache_saved: Decimal | None = None

    @property
    def nano(self) -> int | None:
        """``total`` in whole nano-dollars, as stored in the ledger."""
        return None if self.total is None else int((self.total * NANO).to_integral_value())
