"""Turn the usage an answer reports, in any of the vendors' shapes, into one vocabulary.

A count that cannot be right (negative, no whole number) is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from specclient.types.base import WireModel
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage, ReportedCharge, Usage

_MOST_DIGITS = 15

#: xAI, "Cost tracking": ten thousand million ticks are a dollar.
_TICKS = Decimal("1e-10")


def usage_of(answer: Any) -> Usage | None:
    """Return the tokens that an answer, chunk or event reports; None where it reports none."""
    reported = getattr(answer, "usage", None)
    if isinstance(reported, CompletionUsage):
        usage = _completion_usage(reported)
        extra = answer.__pydantic_extra__
        if usage.cached is None and extra and "perf_metrics" in extra:  # Fireworks
            return with_cached(usage, _count_of(_mapping(extra["perf_metrics"]).get("cached-prompt-tokens")))
        return usage
    if isinstance(answer, ChatCompletionChunk | ChatCompletion | Completion):  # most chunks end here
        return _usage_of_groq(answer) if answer.__pydantic_extra__ else None
    if reported is None:
        inner = getattr(answer, "response", None)  # the last event of a streamed response carries it whole
        reported = getattr(inner, "usage", None)
    return None if reported is None else _other_usage(reported)


def cached_in(headers: Mapping[str, str]) -> int | None:
    """Return the prompt tokens read from a cache that the headers of an answer tell (Fireworks)."""
    told = headers.get("fireworks-cached-prompt-tokens")
    return None if told is None else _count_of(told)


def with_cached(usage: Usage, cached: int | None) -> Usage:
    """Return ``usage`` with prompt tokens read from a cache, where it tells none itself."""
    if usage.cached is not None or usage.prompt is None or cached is None or cached > usage.prompt:
        return usage
    return replace(usage, cached=cached)


def _completion_usage(reported: CompletionUsage) -> Usage:
    given = reported.model_fields_set
    extra = reported.model_extra or {}
    inputs, outputs = reported.prompt_tokens_details, reported.completion_tokens_details
    prompt = count(reported.prompt_tokens) if "prompt_tokens" in given else None
    completion = count(reported.completion_tokens) if "completion_tokens" in given else None
    reasoning = count(getattr(outputs, "reasoning_tokens", None))
    if reasoning is None:
        reasoning = count(extra.get("reasoning_tokens"))  # SGLang
    if (
        completion is not None
        and reasoning
        and reported.total_tokens == (prompt or 0) + completion + reasoning
    ):
        completion += reasoning  # xAI counts reasoning beside completion_tokens; the sum tells
    cached = count(getattr(inputs, "cached_tokens", None))
    if cached is None:
        cached = count(extra.get("prompt_cache_hit_tokens"))  # DeepSeek: the prompt is hits and misses
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=cached,
        cache_write=count(getattr(inputs, "cache_write_tokens", None)),
        reasoning=reasoning,
        accepted_prediction=count(getattr(outputs, "accepted_prediction_tokens", None)),
        rejected_prediction=count(getattr(outputs, "rejected_prediction_tokens", None)),
        cache_write_1h=_written_1h(extra),
        audio_prompt=count(getattr(inputs, "audio_tokens", None)),
        image_prompt=count(getattr(inputs, "image_tokens", None)),
        audio_completion=count(getattr(outputs, "audio_tokens", None)),
        image_completion=count(_mapping(outputs).get("image_tokens")),
        searches=count(_mapping(extra.get("server_tool_use")).get("web_search_requests")),
        charges=_charges(extra),
    )


def _other_usage(reported: Any) -> Usage | None:
    """Read the usage of responses, images and speech (input and output tokens) and of embeddings."""
    fields = _mapping(reported)
    inputs, outputs = (
        _mapping(fields.get(f"{side}_tokens_details") or fields.get(f"{side}_token_details"))  # of speech
        for side in ("input", "output")
    )
    prompt = count(fields.get("input_tokens"))
    completion = count(fields.get("output_tokens"))
    if prompt is None and completion is None:
        prompt, completion = count(fields.get("prompt_tokens")), count(fields.get("completion_tokens"))
        if prompt is None and completion is None:
            return None  # by the minute, or by the image: nothing that counts in tokens
        completion = completion or 0  # an embedding generates nothing
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=count(inputs.get("cached_tokens")),
        cache_write=count(inputs.get("cache_write_tokens")),
        reasoning=count(outputs.get("reasoning_tokens")),
        audio_prompt=count(inputs.get("audio_tokens")),
        image_prompt=count(inputs.get("image_tokens")),
        audio_completion=count(outputs.get("audio_tokens")),
        image_completion=count(outputs.get("image_tokens")),
        charges=_charges(fields),
    )


def _written_1h(extra: Mapping[str, Any]) -> int | None:
    """Return the tokens written to a cache for an hour (Anthropic, "Prompt caching", 1-hour duration)."""
    created = extra.get("cache_creation")
    return count(created.get("ephemeral_1h_input_tokens")) if isinstance(created, Mapping) else None


def _charges(fields: Mapping[str, Any]) -> tuple[ReportedCharge, ...]:
    """Return the dollars that a usage says were charged: xAI's ticks, OpenRouter's ``cost``.

    Where the caller's own key paid the vendor behind OpenRouter, ``cost`` is the router's fee alone, and what
    the vendor took stands beside it ("Usage accounting", cost breakdown).
    """
    found = []
    ticks, cost = count(fields.get("cost_in_usd_ticks")), _dollars(fields.get("cost"))
    if ticks is not None:
        found.append(ReportedCharge("cost_in_usd_ticks", ticks * _TICKS))
    if cost is not None and fields.get("is_byok") is True:
        paid = _dollars(_mapping(fields.get("cost_details")).get("upstream_inference_cost"))
        cost = None if paid is None else cost + paid
    if cost is not None:
        found.append(ReportedCharge("cost", cost))
    return tuple(found)


def _dollars(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**_MOST_DIGITS:
        return None
    return Decimal(repr(value))


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return an object's fields; none of what is no object."""
    if isinstance(value, Mapping):
        return value
    return {**value.__dict__, **(value.model_extra or {})} if isinstance(value, WireModel) else {}


def _usage_of_groq(answer: Any) -> Usage | None:
    groq = (getattr(answer, "model_extra", None) or {}).get("x_groq")
    counts = groq.get("usage") if isinstance(groq, Mapping) else None
    if not isinstance(counts, Mapping):
        return None
    return Usage(prompt=count(counts.get("prompt_tokens")), completion=count(counts.get("completion_tokens")))


def count(value: object) -> int | None:
    """Return a value where it is a count: a whole number of 0 or more, and of no absurd size."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 10**_MOST_DIGITS else None


def _count_of(value: object) -> int | None:
    """Return a count, or text that is one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS else None
    return count(value)
