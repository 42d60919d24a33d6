"""Parsers of speculation telemetry, one for each server's format.

Each parser gets the object that holds the server's fields, and returns None where they report nothing. The
vendors define what a figure means; the docstrings name the sources. An impossible figure (negative, NaN,
text that is not a number, a rate outside 0 to 1, a length that no draft has) counts as not reported. If
figures contradict each other (more accepted than drafted), none of them is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from specclient.types.base import field_of
from specclient.types.usage import Speculation

TelemetryFields = Mapping[str, Any]

_MAX_COUNT = 2**53  # larger integers are not exact in every JSON parser
_MAX_DRAFT = 1024  # tokens
_NUMBER = re.compile(r"[0-9]{1,16}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?")
_POSITION_HITS = re.compile(r"([0-9]{1,4}):([0-9]{1,12})/([0-9]{1,12})")


def number(value: Any) -> float | None:
    """Return a finite, non-negative number, or text that is one, as a float; None for anything else."""
    if isinstance(value, str):
        value = float(text) if _NUMBER.fullmatch(text := value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_COUNT:
        return None
    return float(value)


def count(value: Any) -> int | None:
    """Return a whole :func:`number`; None for anything else."""
    parsed = number(value)
    return int(parsed) if parsed is not None and parsed.is_integer() else None


def rate(value: Any) -> float | None:
    """Return a :func:`number` from 0 to 1; None for anything else."""
    parsed = number(value)
    return parsed if parsed is not None and parsed <= 1 else None


def checked_speculation(
    *,
    drafted: int | None = None,
    accepted: int | None = None,
    steps: int | None = None,
    acceptance_rate: Any = None,
    mean_accepted_length: Any = None,
    per_position: tuple[float, ...] | None = None,
    predicted: tuple[int | None, int | None] = (None, None),
    method: str | None = None,
) -> Speculation | None:
    """Check figures by rules that hold for all vendors, and return them as a record.

    Args:
        drafted, accepted: draft tokens.
        steps: verification passes.
        acceptance_rate, mean_accepted_length: as the server reports them. Where the counts are known, they
            are computed instead: rate = accepted / drafted, length = 1 + accepted / steps.
        per_position: acceptance rate by draft position.
        predicted: accepted and rejected tokens of a user's ``prediction``.
        method: the method of speculation.

    Returns:
        None where nothing is known, or the figures contradict each other.
    """
    if accepted and drafted is not None and accepted > drafted:
        return None
    if accepted and steps is not None and accepted > steps * _MAX_DRAFT:
        return None
    checked_rate, length = rate(acceptance_rate), number(mean_accepted_length)
    if accepted is not None and drafted is not None:
        checked_rate = accepted / drafted if drafted else None
    if accepted is not None and steps:
        length = 1 + accepted / steps
    record = Speculation(
        method=method,
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=checked_rate,
        mean_accepted_length=length if length is not None and 1 <= length <= 1 + _MAX_DRAFT else None,
        per_position=per_position,
        predicted_accepted=predicted[0],
        predicted_rejected=predicted[1],
    )
    return None if record == Speculation(method=method) else record


def openai(usage: TelemetryFields) -> Speculation | None:
    """Parse the counts of a user's prediction in ``completion_tokens_details`` (OpenAI "Predicted Outputs").

    Azure, Cerebras and OpenRouter use the same names. The Responses API has the counts in
    ``output_tokens_details``.
    """
    details = field_of(usage, "completion_tokens_details") or field_of(usage, "output_tokens_details")
    accepted = count(field_of(details, "accepted_prediction_tokens"))
    return checked_speculation(predicted=(accepted, count(field_of(details, "rejected_prediction_tokens"))))


def specclient(answer: TelemetryFields) -> Speculation | None:
    """Parse ``specclient.speculation``, the record that our own server returns."""
    record = field_of(field_of(answer, "specclient"), "speculation")
    shares = field_of(record, "per_position")
    rates = [rate(share) for share in shares] if isinstance(shares, list) else []
    method = field_of(record, "method")
    return checked_speculation(
        drafted=count(field_of(record, "drafted")),
        accepted=count(field_of(record, "accepted")),
        steps=count(field_of(record, "steps")),
        acceptance_rate=field_of(record, "acceptance_rate"),
        mean_accepted_length=field_of(record, "mean_accepted_length"),
        per_position=_all_known(rates),
        predicted=(
            count(field_of(record, "predicted_accepted")),
            count(field_of(record, "predicted_rejected")),
        ),
        method=method if isinstance(method, str) else None,
    )


def vllm(answer: TelemetryFields) -> Speculation | None:
    """Parse ``metrics.speculative_decoding`` (vLLM, "Per-Request Acceptance Metrics").

    It is null for ``n > 1``, and in streams only in the chunk with usage.
    """
    record = field_of(field_of(answer, "metrics"), "speculative_decoding")
    steps, drafted = count(field_of(record, "num_spec_steps")), count(field_of(record, "num_draft_tokens"))
    accepted = count(field_of(record, "num_accepted_draft_tokens"))
    rates = _rates_from_steps(
        field_of(record, "per_step_accepted"), field_of(record, "per_step_drafted"), drafted, accepted
    )
    return checked_speculation(
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=field_of(record, "draft_acceptance_rate"),
        mean_accepted_length=field_of(record, "mean_acceptance_length"),
        per_position=rates
        or _rates_from_histogram(field_of(record, "acceptance_histogram"), steps, drafted, accepted),
    )


def sglang(meta: Any) -> Speculation | None:
    """Parse SGLang's ``spec_*`` fields, by their current names or those up to version 0.5.9.

    They are absent where nothing was verified. ``spec_accept_length`` is tokens / passes, the target's own
    token included.
    """

    def current_or_old(name: str, old_name: str) -> Any:
        value = field_of(meta, name)
        return field_of(meta, old_name) if value is None else value

    steps = count(field_of(meta, "spec_verify_ct"))
    drafted = count(current_or_old("spec_num_proposed_drafts", "spec_draft_token_num"))
    accepted = count(current_or_old("spec_num_correct_drafts", "spec_accept_token_num"))
    histogram = current_or_old("spec_correct_drafts_histogram", "spec_accept_histogram")
    return checked_speculation(
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=field_of(meta, "spec_accept_rate"),
        mean_accepted_length=field_of(meta, "spec_accept_length"),
        per_position=_rates_from_histogram(histogram, steps, drafted, accepted),
    )


def sglang_meta_info(container: TelemetryFields) -> Speculation | None:
    """Parse ``meta_info`` of a choice (``return_meta_info``) or of an answer to ``/generate``."""
    return sglang(field_of(container, "meta_info"))


def sglang_extension(answer: TelemetryFields) -> Speculation | None:
    """Parse ``sglext.spec_tokens_details`` (``return_spec_tokens_details``)."""
    return sglang(field_of(field_of(answer, "sglext"), "spec_tokens_details"))


def tensorrt_length(choice: TelemetryFields) -> Speculation | None:
    """Parse ``avg_decoded_tokens_per_iter``, which includes the target's own token.

    A server that does not speculate reports 1, so 1 counts as not reported.
    """
    length = number(field_of(choice, "avg_decoded_tokens_per_iter"))
    return checked_speculation(mean_accepted_length=None if length == 1 else length)


def tensorrt(container: TelemetryFields) -> Speculation | None:
    """Parse ``speculative_decoding`` of a choice or of a record of ``/perf_metrics``."""
    return _totals(
        field_of(container, "speculative_decoding")
        or field_of(field_of(container, "perf_metrics"), "speculative_decoding")
    )


def triton(answer: TelemetryFields) -> Speculation | None:
    """Parse the outputs of Triton's LLM-API backend (``return_perf_metrics``), which are text."""
    return _totals(answer)


def _totals(record: Any) -> Speculation | None:
    """Parse TensorRT-LLM's totals, which Triton reports under the same names."""
    drafted = count(field_of(record, "total_draft_tokens"))
    if drafted == 0:  # also reported by an engine that does not speculate
        return None
    return checked_speculation(
        drafted=drafted,
        accepted=count(field_of(record, "total_accepted_draft_tokens")),
        steps=count(field_of(record, "num_spec_steps")),
        acceptance_rate=field_of(record, "acceptance_rate"),
    )


def llama_cpp(answer: TelemetryFields) -> Speculation | None:
    """Parse ``timings``: the keys exist only if tokens were drafted; passes are not counted."""
    record = field_of(answer, "timings")
    return checked_speculation(
        drafted=count(field_of(record, "draft_n")), accepted=count(field_of(record, "draft_n_accepted"))
    )


def lm_studio(answer: TelemetryFields) -> Speculation | None:
    """Parse ``stats`` (LM Studio API changelog, 0.3.10).

    Ignored draft tokens were never verified, and do not count as drafted.
    """
    record = field_of(answer, "stats")
    total = count(field_of(record, "total_draft_tokens_count"))
    accepted = count(field_of(record, "accepted_draft_tokens_count"))
    rejected = count(field_of(record, "rejected_draft_tokens_count"))
    ignored = count(field_of(record, "ignored_draft_tokens_count"))
    drafted = None
    if accepted is not None and rejected is not None:
        drafted = accepted + rejected
    elif total is not None and ignored is not None and ignored <= total:
        drafted = total - ignored
    if drafted is not None and total is not None and drafted > total:
        return None
    return checked_speculation(
        drafted=drafted, accepted=accepted, method="draft" if field_of(record, "draft_model") else None
    )


def fireworks(answer: TelemetryFields) -> Speculation | None:
    """Parse ``perf_metrics`` (``perf_metrics_in_response``; in streams in the final chunk)."""
    return _fireworks(field_of(answer, "perf_metrics"), "")


def fireworks_headers(headers: TelemetryFields) -> Speculation | None:
    """Parse the same figures in the headers of a complete answer, which always has them."""
    return _fireworks(headers, "fireworks-")


def _fireworks(record: Any, prefix: str) -> Speculation | None:
    """Parse the counts of a prediction's tokens, and ``0:12/20,1:7/20``: hits/tries by draft position.

    ``speculation-generated-tokens`` is not used: its meaning is not documented well enough.
    """
    prompt = count(field_of(record, f"{prefix}speculation-prompt-tokens"))
    matched = count(field_of(record, f"{prefix}speculation-prompt-matched-tokens"))
    if matched is None:
        matched = count(field_of(record, f"{prefix}speculation-matched-tokens"))  # the header's earlier name
    if matched is not None and prompt is not None and matched > prompt:
        matched = prompt = None
    rejected = prompt - matched if prompt is not None and matched is not None else None
    return checked_speculation(
        per_position=_rates_from_hits(field_of(record, f"{prefix}speculation-acceptance")),
        predicted=(matched, rejected),
    )


def samba_nova(usage: TelemetryFields) -> Speculation | None:
    """Parse ``usage.acceptance_rate``; its counts are not reported."""
    return checked_speculation(acceptance_rate=field_of(usage, "acceptance_rate"))


def _all_known(rates: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return rates if all of them are known; None otherwise, or if there are none."""
    known = tuple(each for each in rates if each is not None)
    return known if known and len(known) == len(rates) else None


def _counts(value: Any) -> list[int] | None:
    if not isinstance(value, list):
        return None
    counts = [count(entry) for entry in value]
    return None if None in counts else [entry for entry in counts if entry is not None]


def _rates_from_histogram(
    histogram: Any, steps: int | None, drafted: int | None, accepted: int | None
) -> tuple[float, ...] | None:
    """Return the acceptance rate by position from the number of rounds that accepted 0, 1, 2, … tokens.

    None unless every round drafted the histogram's full width, and it agrees with the counts.
    """
    rounds = _counts(histogram)
    if not rounds or not steps or sum(rounds) != steps or drafted != steps * (len(rounds) - 1):
        return None
    if accepted != sum(length * number_of for length, number_of in enumerate(rounds)):
        return None
    return tuple(sum(rounds[length:]) / steps for length in range(1, len(rounds))) or None


def _rates_from_steps(
    step_accepted: Any, step_drafted: Any, drafted: int | None, accepted: int | None
) -> tuple[float, ...] | None:
    """Return the acceptance rate by position from each round's counts; exact for any draft lengths.

    None where they do not agree with the totals.
    """
    kept, tried = _counts(step_accepted), _counts(step_drafted)
    if not kept or not tried or len(kept) != len(tried) or any(map(int.__gt__, kept, tried)):
        return None
    if sum(kept) != accepted or sum(tried) != drafted or max(tried) > _MAX_DRAFT:
        return None
    reached = [sum(length > position for length in tried) for position in range(max(tried))]
    accepted_at = [sum(length > position for length in kept) for position in range(max(tried))]
    return tuple(a / r for a, r in zip(accepted_at, reached, strict=True)) or None


def _rates_from_hits(text: Any) -> tuple[float, ...] | None:
    """Return the acceptance rates in ``position:hits/tries,…``; None where the tries differ by position.

    In that case it is not documented whether the tries include rounds that rejected an earlier position.
    """
    entries = text.split(",") if isinstance(text, str) else []
    matches = [_POSITION_HITS.fullmatch(entry.strip()) for entry in entries]
    rows = [tuple(map(int, match.groups())) for match in matches if match is not None]
    if not rows or len(rows) != len(entries) or len({tries for _, _, tries in rows}) != 1:
        return None
    positions, hits, tries = [row[0] for row in rows], [row[1] for row in rows], rows[0][2]
    first = positions[0]
    is_ordered = first <= 1 and positions == list(range(first, first + len(positions)))
    if not is_ordered or not tries or hits[0] > tries or hits != sorted(hits, reverse=True):
        return None
    return tuple(hit / tries for hit in hits)
