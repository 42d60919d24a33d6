"""Turn the fields in which one server tells of speculation into figures that cannot be wrong.

One reader a dialect; each gets the fields beside which its own stand, and returns None where they tell
nothing. What a figure means is each vendor's: see the sources named. A figure that cannot be right
(negative, NaN, text that is no number, a rate outside 0 to 1, a length no draft has) counts as not given, and
figures that contradict each other (more accepted than drafted) are all not given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from specclient.types.base import WireModel
from specclient.types.usage import Speculation

TelemetryFields = Mapping[str, Any]

_MOST = 2**53  # a count beyond is no whole number in every JSON reader
_LONGEST = 1024  # tokens of one draft
_NUMBER = re.compile(r"[0-9]{1,16}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?")
_HIT = re.compile(r"([0-9]{1,4}):([0-9]{1,12})/([0-9]{1,12})")


def get(where: Any, key: str) -> Any:
    """Return a field of a mapping or of a wire object, the unknown ones included; None where it is not."""
    if isinstance(where, WireModel):
        known = where.__dict__
        return known[key] if key in known else (where.__pydantic_extra__ or {}).get(key)
    return where.get(key) if isinstance(where, Mapping) else None


def number(value: Any) -> float | None:
    """Return a finite number of 0 or more, or text that is one, as a float; None for anything else."""
    if isinstance(value, str):
        value = float(text) if _NUMBER.fullmatch(text := value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        return None
    return float(value)


def count(value: Any) -> int | None:
    """Return a whole :func:`number`; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def rate(value: Any) -> float | None:
    """Return a :func:`number` from 0 to 1; None for anything else."""
    found = number(value)
    return found if found is not None and found <= 1 else None


def checked_speculation(
    *,
    drafted: int | None = None,
    accepted: int | None = None,
    steps: int | None = None,
    acceptance_rate: Any = None,
    length: Any = None,
    per_position: tuple[float, ...] | None = None,
    predicted: tuple[int | None, int | None] = (None, None),
    method: str | None = None,
) -> Speculation | None:
    """Return figures under the rules all vendors share; None where nothing is known, or they contradict.

    Args:
        acceptance_rate, length: as the server states them; what follows from the counts goes before:
            rate = accepted / drafted, mean accepted length = 1 + accepted / steps.
        predicted: accepted and rejected tokens of a user's ``prediction``.
    """
    if accepted and drafted is not None and accepted > drafted:
        return None
    if accepted and steps is not None and accepted > steps * _LONGEST:
        return None
    stated, least = rate(acceptance_rate), number(length)
    if accepted is not None and drafted is not None:
        stated = accepted / drafted if drafted else None
    if accepted is not None and steps:
        least = 1 + accepted / steps
    found = Speculation(
        method=method,
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=stated,
        mean_accepted_length=least if least is not None and 1 <= least <= 1 + _LONGEST else None,
        per_position=per_position,
        predicted_accepted=predicted[0],
        predicted_rejected=predicted[1],
    )
    return None if found == Speculation(method=method) else found


def openai(usage: TelemetryFields) -> Speculation | None:
    """Read a user's prediction, in ``completion_tokens_details`` (OpenAI "Predicted Outputs").

    Azure, Cerebras and OpenRouter name the counts alike; the Responses API calls their place
    ``output_tokens_details``.
    """
    details = get(usage, "completion_tokens_details") or get(usage, "output_tokens_details")
    accepted = count(get(details, "accepted_prediction_tokens"))
    return checked_speculation(predicted=(accepted, count(get(details, "rejected_prediction_tokens"))))


def specclient(answer: TelemetryFields) -> Speculation | None:
    """Read ``specclient.speculation``, the record as our own server dumps it."""
    told = get(get(answer, "specclient"), "speculation")
    shares = get(told, "per_position")
    kept = [rate(share) for share in shares] if isinstance(shares, list) else []
    method = get(told, "method")
    return checked_speculation(
        drafted=count(get(told, "drafted")),
        accepted=count(get(told, "accepted")),
        steps=count(get(told, "steps")),
        acceptance_rate=get(told, "acceptance_rate"),
        length=get(told, "mean_accepted_length"),
        per_position=_known(kept),
        predicted=(count(get(told, "predicted_accepted")), count(get(told, "predicted_rejected"))),
        method=method if isinstance(method, str) else None,
    )


def vllm(answer: TelemetryFields) -> Speculation | None:
    """Read ``metrics.speculative_decoding`` (vLLM, "Per-Request Acceptance Metrics").

    Null for ``n > 1``; in streams only on the chunk with usage.
    """
    told = get(get(answer, "metrics"), "speculative_decoding")
    steps, drafted = count(get(told, "num_spec_steps")), count(get(told, "num_draft_tokens"))
    accepted = count(get(told, "num_accepted_draft_tokens"))
    shares = _shares_of_steps(
        get(told, "per_step_accepted"), get(told, "per_step_drafted"), drafted, accepted
    )
    return checked_speculation(
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=get(told, "draft_acceptance_rate"),
        length=get(told, "mean_acceptance_length"),
        per_position=shares or _shares(get(told, "acceptance_histogram"), steps, drafted, accepted),
    )


def sglang(meta: Any) -> Speculation | None:
    """Read SGLang's ``spec_*`` fields, by their names of today or of up to 0.5.9.

    Absent where nothing was verified. ``spec_accept_length`` is tokens / passes, the target's own included.
    """

    def told(name: str, older: str) -> Any:
        found = get(meta, name)
        return get(meta, older) if found is None else found

    steps = count(get(meta, "spec_verify_ct"))
    drafted = count(told("spec_num_proposed_drafts", "spec_draft_token_num"))
    accepted = count(told("spec_num_correct_drafts", "spec_accept_token_num"))
    histogram = told("spec_correct_drafts_histogram", "spec_accept_histogram")
    return checked_speculation(
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        acceptance_rate=get(meta, "spec_accept_rate"),
        length=get(meta, "spec_accept_length"),
        per_position=_shares(histogram, steps, drafted, accepted),
    )


def sglang_meta_info(where: TelemetryFields) -> Speculation | None:
    """Read ``meta_info``, of a choice (``return_meta_info``) or of an answer to ``/generate``."""
    return sglang(get(where, "meta_info"))


def sglang_extension(answer: TelemetryFields) -> Speculation | None:
    """Read ``sglext.spec_tokens_details`` (``return_spec_tokens_details``)."""
    return sglang(get(get(answer, "sglext"), "spec_tokens_details"))


def tensorrt_length(choice: TelemetryFields) -> Speculation | None:
    """Read ``avg_decoded_tokens_per_iter``, the target's own token included.

    A server that does not speculate tells 1, too: that says nothing of speculation.
    """
    length = number(get(choice, "avg_decoded_tokens_per_iter"))
    return checked_speculation(length=None if length == 1 else length)


def tensorrt(where: TelemetryFields) -> Speculation | None:
    """Read ``speculative_decoding``, of a choice or of a record of ``/perf_metrics``."""
    return _totals(
        get(where, "speculative_decoding") or get(get(where, "perf_metrics"), "speculative_decoding")
    )


def triton(answer: TelemetryFields) -> Speculation | None:
    """Read the outputs of Triton's LLM-API backend (``return_perf_metrics``), which are text."""
    return _totals(answer)


def _totals(told: Any) -> Speculation | None:
    drafted = count(get(told, "total_draft_tokens"))
    if drafted == 0:  # what an engine that does not speculate tells, too
        return None
    return checked_speculation(
        drafted=drafted,
        accepted=count(get(told, "total_accepted_draft_tokens")),
        steps=count(get(told, "num_spec_steps")),
        acceptance_rate=get(told, "acceptance_rate"),
    )


def llama_cpp(answer: TelemetryFields) -> Speculation | None:
    """Read ``timings``: the keys are there only if something was drafted; passes are not counted."""
    told = get(answer, "timings")
    return checked_speculation(
        drafted=count(get(told, "draft_n")), accepted=count(get(told, "draft_n_accepted"))
    )


def lm_studio(answer: TelemetryFields) -> Speculation | None:
    """Read ``stats`` (LM Studio API changelog, 0.3.10).

    Of the drafted tokens, those it calls ignored were never verified: ``drafted`` is without them.
    """
    told = get(answer, "stats")
    total = count(get(told, "total_draft_tokens_count"))
    accepted = count(get(told, "accepted_draft_tokens_count"))
    rejected = count(get(told, "rejected_draft_tokens_count"))
    ignored = count(get(told, "ignored_draft_tokens_count"))
    drafted = None
    if accepted is not None and rejected is not None:
        drafted = accepted + rejected
    elif total is not None and ignored is not None and ignored <= total:
        drafted = total - ignored
    if drafted is not None and total is not None and drafted > total:
        return None
    return checked_speculation(
        drafted=drafted, accepted=accepted, method="draft" if get(told, "draft_model") else None
    )


def fireworks(answer: TelemetryFields) -> Speculation | None:
    """Read ``perf_metrics`` (``perf_metrics_in_response``; in streams on the final chunk)."""
    return _fireworks(get(answer, "perf_metrics"), "")


def fireworks_headers(headers: TelemetryFields) -> Speculation | None:
    """Read the same figures from the headers of a whole answer, which are always there."""
    return _fireworks(headers, "fireworks-")


def _fireworks(told: Any, prefix: str) -> Speculation | None:
    """Read counts of a prediction's tokens, and ``0:12/20,1:7/20``: hits and tries by draft position.

    ``speculation-generated-tokens`` is not documented well enough to be given a meaning here.
    """
    prompt = count(get(told, f"{prefix}speculation-prompt-tokens"))
    matched = count(get(told, f"{prefix}speculation-prompt-matched-tokens"))
    if matched is None:
        matched = count(get(told, f"{prefix}speculation-matched-tokens"))  # as the header was called
    if matched is not None and prompt is not None and matched > prompt:
        matched = prompt = None
    rejected = prompt - matched if prompt is not None and matched is not None else None
    return checked_speculation(
        per_position=_hits(get(told, f"{prefix}speculation-acceptance")), predicted=(matched, rejected)
    )


def samba_nova(usage: TelemetryFields) -> Speculation | None:
    """Read ``usage.acceptance_rate``; the counts behind it are not told."""
    return checked_speculation(acceptance_rate=get(usage, "acceptance_rate"))


def _known(shares: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return shares of which every one is known; None without any."""
    known = tuple(share for share in shares if share is not None)
    return known if known and len(known) == len(shares) else None


def _counts(value: Any) -> list[int] | None:
    if not isinstance(value, list):
        return None
    found = [count(entry) for entry in value]
    return None if None in found else [entry for entry in found if entry is not None]


def _shares(
    histogram: Any, steps: int | None, drafted: int | None, accepted: int | None
) -> tuple[float, ...] | None:
    """Return the share of rounds that kept each position, from how many rounds kept 0, 1, 2, … drafts.

    Known only where every round drafted the histogram's full width, and it agrees with the counts.
    """
    rounds = _counts(histogram)
    if not rounds or not steps or sum(rounds) != steps or drafted != steps * (len(rounds) - 1):
        return None
    if accepted != sum(kept * times for kept, times in enumerate(rounds)):
        return None
    return tuple(sum(rounds[kept:]) / steps for kept in range(1, len(rounds))) or None


def _shares_of_steps(
    kept: Any, tried: Any, drafted: int | None, accepted: int | None
) -> tuple[float, ...] | None:
    """Return the same from each round's own counts: exact, however far each round drafted."""
    kept, tried = _counts(kept), _counts(tried)
    if not kept or not tried or len(kept) != len(tried) or any(map(int.__gt__, kept, tried)):
        return None
    if sum(kept) != accepted or sum(tried) != drafted or max(tried) > _LONGEST:
        return None
    reached = [sum(far > place for far in tried) for place in range(max(tried))]
    return tuple(sum(far > place for far in kept) / times for place, times in enumerate(reached)) or None


def _hits(told: Any) -> tuple[float, ...] | None:
    """Return the shares that ``position:hits/tries,…`` tells; None where rounds drafted unlike lengths.

    With unlike tries it is not documented whether a try counts rounds that had lost an earlier position.
    """
    rows = [_HIT.fullmatch(entry.strip()) for entry in told.split(",")] if isinstance(told, str) else []
    found = [tuple(map(int, row.groups())) for row in rows if row is not None]
    if not found or len(found) != len(rows) or len({tries for _, _, tries in found}) != 1:
        return None
    places, hits, tries = [row[0] for row in found], [row[1] for row in found], found[0][2]
    ordered = places == list(range(places[0], places[0] + len(places))) and places[0] <= 1
    if not ordered or not tries or hits[0] > tries or hits != sorted(hits, reverse=True):
        return None
    return tuple(hit / tries for hit in hits)
