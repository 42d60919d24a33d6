"""Reader of the token usage that responses report, in the forms of all vendors.

An invalid count (negative, or not a whole number) is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from specclient.providers.reported_fields import COUNT_DIGITS, COUNT_END, count, fields_of
from specclient.providers.tool_usage import code_executions, with_tools
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.usage import CompletionUsage, ReportedCharge, Usage, UsageUnit

_COMPLETIONS = frozenset({ChatCompletion, ChatCompletionChunk, Completion})
_MOST_SECONDS = 10**7
_LONGEST_TEXT = 64

#: Dollars per tick: 10,000,000,000 ticks are one dollar (xAI, "Cost tracking").
_TICKS = Decimal("1e-10")


def usage_of(answer: Any) -> Usage | None:
    """Return the usage that a response, chunk or event reports; None if it reports none."""
    reported = getattr(answer, "usage", None)
    if reported is None and type(answer) in _COMPLETIONS:  # most chunks end here
        return _usage_of_groq(answer) if answer.__pydantic_extra__ else None
    if isinstance(reported, CompletionUsage):
        usage = _completion_usage(reported)
        extra = answer.__pydantic_extra__
        if usage.cached is None and extra and "perf_metrics" in extra:  # Fireworks
            return with_cached(usage, _count_of(fields_of(extra["perf_metrics"]).get("cached-prompt-tokens")))
        return usage
    if isinstance(answer, ChatCompletionChunk | ChatCompletion | Completion):
        return _usage_of_groq(answer) if answer.__pydantic_extra__ else None
    if reported is None:
        answer = getattr(answer, "response", answer)  # the last event of a streamed response contains it
        reported = getattr(answer, "usage", None)
    if reported is None:
        return _heard(getattr(answer, "duration", None), estimated=True)
    found = _other_usage(reported)
    return found if found is None else with_tools(found, getattr(answer, "output", None), answer)


def cached_in(headers: Mapping[str, str]) -> int | None:
    """Return the number of cached prompt tokens from response headers (Fireworks); None if missing."""
    header = headers.get("fireworks-cached-prompt-tokens")
    return None if header is None else _count_of(header)


def with_cached(usage: Usage, cached: int | None) -> Usage:
    """Return ``usage`` with a number of cached prompt tokens, unless it has one, or the number is invalid."""
    if usage.cached is not None or usage.prompt is None or cached is None or cached > usage.prompt:
        return usage
    return replace(usage, cached=cached)


def completion_usage(usage: Usage) -> CompletionUsage | None:
    """Return reported usage in the form of chat completions; None if it is unknown or an estimate."""
    if usage.estimated or usage.prompt is None or usage.completion is None:
        return None
    inputs = {"cached_tokens": usage.cached, "audio_tokens": usage.audio_prompt}
    outputs = {
        "reasoning_tokens": usage.reasoning,
        "accepted_prediction_tokens": usage.accepted_prediction,
        "rejected_prediction_tokens": usage.rejected_prediction,
        "audio_tokens": usage.audio_completion,
    }
    details = {"prompt_tokens_details": inputs, "completion_tokens_details": outputs}
    given = {
        name: {field: count for field, count in counts.items() if count is not None}
        for name, counts in details.items()
    }
    return CompletionUsage.model_validate(
        {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            **{name: counts for name, counts in given.items() if counts},
        }
    )


def _completion_usage(reported: CompletionUsage) -> Usage:
    given = reported.__pydantic_fields_set__
    extra = reported.__pydantic_extra__ or {}
    inputs, outputs = reported.prompt_tokens_details, reported.completion_tokens_details
    prompt = count(reported.prompt_tokens) if "prompt_tokens" in given else None
    completion = count(reported.completion_tokens) if "completion_tokens" in given else None
    if inputs is None and outputs is None and not extra:  # of most servers
        return Usage(prompt=prompt, completion=completion)
    media = fields_of(getattr(inputs, "cached_tokens_details", None))  # Gemini
    reasoning = count(getattr(outputs, "reasoning_tokens", None))
    if reasoning is None:
        reasoning = count(extra.get("reasoning_tokens"))  # SGLang
    if (
        completion is not None
        and reasoning
        and reported.total_tokens == (prompt or 0) + completion + reasoning
    ):
        completion += reasoning  # xAI: total_tokens shows that completion_tokens excludes reasoning
    cached = count(getattr(inputs, "cached_tokens", None))
    if cached is None:
        cached = count(extra.get("prompt_cache_hit_tokens"))  # DeepSeek: prompt tokens are hits plus misses
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
        image_completion=count(fields_of(outputs).get("image_tokens")),
        cached_audio=count(media.get("audio_tokens")),
        cached_image=count(media.get("image_tokens")),
        searches=count(fields_of(extra.get("server_tool_use")).get("web_search_requests")),
        units=code_executions(fields_of(extra.get("server_tool_use"))),
        charges=charges_in(extra),
        traffic=_text(extra.get("trafficType", extra.get("serviceTier"))) or _speed(extra),
        region=_text(extra.get("inference_geo")),
    )


def _other_usage(reported: Any) -> Usage | None:
    """Return the usage of responses, images and speech (input and output tokens) and of embeddings."""
    fields = fields_of(reported)
    inputs, outputs = (
        fields_of(fields.get(f"{side}_tokens_details") or fields.get(f"{side}_token_details"))  # speech
        for side in ("input", "output")
    )
    cached = fields_of(inputs.get("cached_tokens_details"))  # speech
    prompt = count(fields.get("input_tokens"))
    completion = count(fields.get("output_tokens"))
    if prompt is None and completion is None:
        prompt, completion = count(fields.get("prompt_tokens")), count(fields.get("completion_tokens"))
        if prompt is None and completion is None:
            return _heard(fields.get("seconds")) if fields.get("type") == "duration" else None
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
        cached_audio=count(cached.get("audio_tokens")),
        cached_image=count(cached.get("image_tokens")),
        charges=charges_in(fields),
    )


def _heard(seconds: object, *, estimated: bool = False) -> Usage | None:
    """Return the usage of a transcription that is billed by its seconds; None if they are not valid."""
    if isinstance(seconds, str):  # of a translation
        try:
            seconds = float(seconds)
        except ValueError:
            return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _MOST_SECONDS:
        return None
    return Usage(units=(UsageUnit("audio_second", Decimal(repr(seconds))),), estimated=estimated)


def _written_1h(extra: Mapping[str, Any]) -> int | None:
    """Return the tokens written to a one-hour cache (Anthropic, "Prompt caching", 1-hour duration)."""
    created = extra.get("cache_creation")
    return count(created.get("ephemeral_1h_input_tokens")) if isinstance(created, Mapping) else None


def charges_in(fields: Mapping[str, Any]) -> tuple[ReportedCharge, ...]:
    """Return the charges in dollars that a usage reports: xAI's ticks, OpenRouter's ``cost``.

    If OpenRouter used the caller's own key for the vendor, ``cost`` is only OpenRouter's fee, and the
    vendor's charge is in ``cost_details`` ("Usage accounting", cost breakdown). The result is their sum.
    """
    found = []
    ticks, cost = count(fields.get("cost_in_usd_ticks")), _dollars(fields.get("cost"))
    if ticks is not None:
        found.append(ReportedCharge("cost_in_usd_ticks", ticks * _TICKS))
    if cost is not None and fields.get("is_byok") is True:
        paid = _dollars(fields_of(fields.get("cost_details")).get("upstream_inference_cost"))
        cost = None if paid is None else cost + paid
    if cost is not None:
        found.append(ReportedCharge("cost", cost))
    return tuple(found)


def _speed(extra: Mapping[str, Any]) -> str | None:
    """Return "fast" for an answer in fast mode, which has its own price (Anthropic, "Fast mode")."""
    return "fast" if extra.get("speed") == "fast" else None


def _text(value: object) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def _dollars(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < COUNT_END:
        return None
    return Decimal(repr(value))


def _usage_of_groq(answer: Any) -> Usage | None:
    groq = (getattr(answer, "model_extra", None) or {}).get("x_groq")
    counts = groq.get("usage") if isinstance(groq, Mapping) else None
    if not isinstance(counts, Mapping):
        return None
    return Usage(prompt=count(counts.get("prompt_tokens")), completion=count(counts.get("completion_tokens")))


def _count_of(value: object) -> int | None:
    """Return a count given as a number or as text; None if it is not valid."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= COUNT_DIGITS else None
    return count(value)
