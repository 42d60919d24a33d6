"""Turn the usage an answer reports, in any of the vendors' shapes, into one vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage, Usage


def usage_of(answer: Any) -> Usage | None:
    """Return the tokens that an answer, chunk or event reports; None where it reports none."""
    reported = getattr(answer, "usage", None)
    if isinstance(reported, CompletionUsage):
        return _completion_usage(reported)
    if isinstance(answer, ChatCompletionChunk | ChatCompletion | Completion):  # most chunks end here
        return _usage_of_groq(answer) if answer.__pydantic_extra__ else None
    if reported is None:
        inner = getattr(answer, "response", None)  # the last event of a streamed response carries it whole
        reported = getattr(inner, "usage", None)
    return None if reported is None else _other_usage(reported)


def _completion_usage(reported: CompletionUsage) -> Usage:
    given = reported.model_fields_set
    extra = reported.model_extra or {}
    inputs, outputs = reported.prompt_tokens_details, reported.completion_tokens_details
    reasoning = outputs.reasoning_tokens if outputs else None
    if reasoning is None:
        reasoning = _count(extra.get("reasoning_tokens"))  # SGLang
    completion = reported.completion_tokens if "completion_tokens" in given else None
    prompt = reported.prompt_tokens if "prompt_tokens" in given else None
    if (
        completion is not None
        and reasoning
        and reported.total_tokens == (prompt or 0) + completion + reasoning
    ):
        completion += reasoning  # xAI counts reasoning beside completion_tokens; the sum tells
    cached = inputs.cached_tokens if inputs else None
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=_count(extra.get("prompt_cache_hit_tokens")) if cached is None else cached,  # DeepSeek
        cache_write=inputs.cache_write_tokens if inputs else None,
        reasoning=reasoning,
        accepted_prediction=outputs.accepted_prediction_tokens if outputs else None,
        rejected_prediction=outputs.rejected_prediction_tokens if outputs else None,
    )


def _other_usage(reported: Any) -> Usage | None:
    """Read the usage of responses, images and speech (input and output tokens) and of embeddings."""
    fields = reported if isinstance(reported, Mapping) else dict(reported)
    inputs, outputs = (_mapping(fields.get(f"{side}_tokens_details")) for side in ("input", "output"))
    prompt = _count(fields.get("input_tokens"))
    completion = _count(fields.get("output_tokens"))
    if prompt is None and completion is None:
        prompt, completion = _count(fields.get("prompt_tokens")), _count(fields.get("completion_tokens"))
        if prompt is None and completion is None:
            return None  # by the minute, or by the image: nothing that counts in tokens
        completion = completion or 0  # an embedding generates nothing
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=_count(inputs.get("cached_tokens")),
        cache_write=_count(inputs.get("cache_write_tokens")),
        reasoning=_count(outputs.get("reasoning_tokens")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else dict(value)


def _usage_of_groq(answer: Any) -> Usage | None:
    groq = (getattr(answer, "model_extra", None) or {}).get("x_groq")
    counts = groq.get("usage") if isinstance(groq, Mapping) else None
    if not isinstance(counts, Mapping):
        return None
    return Usage(
        prompt=_count(counts.get("prompt_tokens")), completion=_count(counts.get("completion_tokens"))
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
