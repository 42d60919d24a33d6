"""Token counts of a response: OpenAI's ``usage`` object."""

from __future__ import annotations

from specclient.types.base import WireModel


class PromptTokensDetails(WireModel):
    """Parts of ``prompt_tokens``."""

    audio_tokens: int | None = None
    cache_write_tokens: int | None = None
    cached_tokens: int | None = None
    image_tokens: int | None = None
    text_tokens: int | None = None


class CompletionTokensDetails(WireModel):
    """Parts of ``completion_tokens``."""

    accepted_prediction_tokens: int | None = None
    audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    rejected_prediction_tokens: int | None = None
    text_tokens: int | None = None


class CompletionUsage(WireModel):
    """The ``usage`` object of a response."""

    completion_tokens: int = 0
    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
