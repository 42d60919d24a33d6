"""Turn the speculation figures in servers' answers, each in its own dialect, into one Speculation.

Known dialects: prediction counts in ``usage.completion_tokens_details`` (OpenAI, Azure, Cerebras,
OpenRouter), ``timings`` (llama.cpp server), ``metrics.speculative_decoding`` (vLLM started with
``--per-request-spec-decode-metrics``). What a server does not tell stays None: unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specclient.types.usage import Speculation

__all__ = ["recognise"]


def recognise(answer: Any, *, predicted: bool = False) -> Speculation | None:
    """Return what an answer tells of speculation, or None where it tells nothing.

    Args:
        answer: a decoded answer or chunk, as a mapping or as an object with attributes.
        predicted: whether the request carried a ``prediction``. Without one, OpenAI reports 0
            accepted and 0 rejected, which then means nothing.

    Draft tokens and the tokens of a user's ``prediction`` are different quantities and stay apart:
    ``drafted``/``accepted`` are never filled from a prediction. A figure that cannot be right (negative,
    not a number, more accepted than drafted) counts as not given.
    """
    drafts = _vllm(_get(_get(answer, "metrics"), "speculative_decoding")) or _llama_cpp(
        _get(answer, "timings")
    )
    accepted, rejected = _prediction(answer, predicted)
    if accepted is None and rejected is None:
        return drafts
    if drafts is None:
        return Speculation(
            method="prediction", predicted_accepted=accepted, predicted_rejected=rejected, source="usage"
        )
    return Speculation(
        drafted=drafts.drafted,
        accepted=drafts.accepted,
        steps=drafts.steps,
        acceptance_rate=drafts.acceptance_rate,
        mean_accepted_length=drafts.mean_accepted_length,
        per_position=drafts.per_position,
        predicted_accepted=accepted,
        predicted_rejected=rejected,
        source=f"{drafts.source}, usage",
    )


def _prediction(answer: Any, sent: bool) -> tuple[int | None, int | None]:
    details = _get(_get(answer, "usage"), "completion_tokens_details")
    accepted = _count(details, "accepted_prediction_tokens")
    rejected = _count(details, "rejected_prediction_tokens")
    if not sent and not accepted and not rejected:
        return None, None
    return accepted, rejected


def _llama_cpp(timings: Any) -> Speculation | None:
    """Read ``timings``: the keys are there only if something was drafted; passes are not counted."""
    return _drafts(_count(timings, "draft_n"), _count(timings, "draft_n_accepted"), None, "timings")


def _vllm(metrics: Any) -> Speculation | None:
    """Read ``speculative_decoding``: null for ``n > 1``; in streams only on the chunk with usage."""
    steps = _count(metrics, "num_spec_steps")
    drafted = _count(metrics, "num_draft_tokens")
    accepted = _count(metrics, "num_accepted_draft_tokens")
    width = _count(metrics, "num_spec_tokens")
    full = bool(steps) and width is not None and drafted == width * (steps or 0)
    # The histogram counts rounds by how many drafts they kept; only if every round drafted the full
    # width is it also known how many rounds reached each position.
    histogram = _get(metrics, "acceptance_histogram") if full else None
    return _drafts(drafted, accepted, steps, "metrics", _per_position(histogram, steps or 0))


def _drafts(
    drafted: int | None,
    accepted: int | None,
    steps: int | None,
    source: str,
    per_position: tuple[float, ...] | None = None,
) -> Speculation | None:
    """Apply the shared rules: rate = accepted / drafted, mean accepted length = 1 + accepted / steps."""
    if drafted is None and accepted is None:
        return None
    if drafted is not None and accepted is not None and accepted > drafted:
        return None
    rate = accepted / drafted if accepted is not None and drafted else None
    length = 1 + accepted / steps if accepted is not None and steps else None
    return Speculation(
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=rate,
        mean_accepted_length=length,
        per_position=per_position,
        source=source,
    )


def _per_position(histogram: Any, steps: int) -> tuple[float, ...] | None:
    if not isinstance(histogram, list | tuple) or not all(_is_count(n) for n in histogram):
        return None
    if sum(histogram) != steps:
        return None
    return tuple(sum(histogram[kept:]) / steps for kept in range(1, len(histogram)))


def _count(where: Any, key: str) -> int | None:
    value = _get(where, key)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return value if _is_count(value) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _get(where: Any, key: str) -> Any:
    if isinstance(where, Mapping):
        return where.get(key)
    return None if where is None else getattr(where, key, None)
