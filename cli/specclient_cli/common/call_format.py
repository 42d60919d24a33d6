"""The record of a call as JSON values and as one line of text."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from specclient.runtime.number_format import format_dollars
from specclient.types.call import Call
from specclient.types.route import Candidate, Decision
from specclient.types.usage import Cost, Speculation


def call_values(call: Call) -> dict[str, Any]:
    """Return a call as ``--json`` prints it. Costs are exact dollars as text; None means unknown."""
    return {
        "id": call.id,
        "status": call.status,
        "model": call.model,
        "served_model": call.served_model,
        "route": decision_values(call.route),
        "usage": asdict(call.usage),
        "cost": _cost(call.cost),
        "speculation": None if call.speculation is None else asdict(call.speculation),
        "ttft_s": call.ttft_s,
        "latency_s": call.latency_s,
        "engine_s": call.engine_s,
        "tokens_per_s": tokens_per_s(call),
        "attempts": call.attempts,
        "tags": dict(call.tags),
    }


def decision_values(route: Decision) -> dict[str, Any]:
    """Return a decision as ``--json`` prints it."""
    falls_back = route.policy is None or route.policy.falls_back
    return {
        "chosen": route.chosen or None,
        "reason": route.reason,
        "task": route.task,
        "explored": route.explored,
        "fallbacks": [other.route for other in route.alternatives if falls_back],
        "candidates": [_candidate(candidate) for candidate in route.candidates],
    }


def tokens_per_s(call: Call) -> float | None:
    """Return generated tokens per second of serving time, including prefill; None if unknown."""
    if not call.usage.completion or call.serving_s <= 0:
        return None
    return call.usage.completion / call.serving_s


def call_summary(call: Call) -> str:
    """Return one line about a call: tokens, speed, cost, speculation and route."""
    parts = [_tokens(call)]
    speed = tokens_per_s(call)
    if speed is not None:
        parts.append(f"{speed:.3g} tokens/s")
    parts.append(cost_text(call.cost.total, estimated=call.cost.estimated))
    if call.speculation is not None:
        parts += speculation_summary(call.speculation)
    parts.append(call.route.chosen)
    return " · ".join(parts)


def speculation_summary(stats: Speculation) -> list[str]:
    """Return the known speculation figures as texts."""
    parts = []
    if stats.acceptance_rate is not None:
        parts.append(f"{stats.acceptance_rate:.0%} of drafts accepted")
    if stats.mean_accepted_length is not None and stats.drafted:
        parts.append(f"{stats.mean_accepted_length:.2f} tokens a pass")
    if stats.predicted_accepted is not None:
        parts.append(f"{stats.predicted_accepted} predicted tokens accepted")
    return parts


def cost_text(amount: Decimal | None, *, estimated: bool = False) -> str:
    """Return dollars to three digits; ``~`` marks an estimate. An unknown cost is ``unpriced``."""
    if amount is None:
        return "unpriced"
    return f"{'~' if estimated else ''}{format_dollars(amount)}"


def _tokens(call: Call) -> str:
    count = call.usage.completion
    if count is None:
        return "tokens unknown"
    return f"{'~' if call.usage.estimated else ''}{count} token{'' if count == 1 else 's'}"


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "usd": None if cost.total is None else f"{cost.total:f}",
        "by_kind": {kind: f"{amount:f}" for kind, amount in cost.by_kind.items()},
        "source": cost.source,
        "estimated": cost.estimated,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    # Other programs may read the violations by the name "broken".
    values = {"broken" if name == "violations" else name: each for name, each in asdict(candidate).items()}
    ends = candidate.cost_range
    return {
        **values,
        "cost": None if candidate.cost is None else f"{candidate.cost:f}",
        "cost_range": None if ends is None else [f"{end:f}" for end in ends],
    }
