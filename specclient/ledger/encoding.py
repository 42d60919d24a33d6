"""Turn a finished Call into the flat values that the ledger keeps of it.

They are made of the call's record, which holds no prompt, reply or key. ``None`` means unknown. What reads
them back is :mod:`specclient.ledger.row`, as most programs never do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_FLOOR
from typing import Any, overload

from pydantic_core import to_json

from specclient.ledger.schema import COLUMN_NAMES, RowValues
from specclient.types.call import Call
from specclient.types.route import Decision
from specclient.types.usage import NANO, Cost, Speculation
from specclient.types.wire import FailedAttempt

__all__ = ["column_values", "encoded_row", "encoded_rows", "nano_by_kind", "timestamp"]

#: The most that a server can make us believe of tokens, and of nano-dollars ($900,000 a call): such sums of
#: many calls still fit into 64 bits.
_MOST = 10**12
_MOST_NANO = 9 * 10**14
JSON_COLUMNS = ("cost_by_kind", "tags", "decision", "metadata")
#: What a lost try has in common with its call.
_ASKED = (
    "started_at", "operation", "provider", "model", "route", "streamed", "strategy", "pair", "tags",
    "metadata", "session",
)  # fmt: skip
_NO_SPECULATION = Speculation()
#: Candidates of a decision that are kept with its call.
_CANDIDATES = 8
_COUNTS = ("drafted", "accepted", "steps", "predicted_accepted", "predicted_rejected")


def _encode(value: Mapping[str, Any]) -> str:
    """Return JSON text; pydantic's takes a third of the time, but no lone surrogates."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value, separators=(",", ":"))


def encoded_row(call: Call) -> RowValues:
    """Return what a database keeps of a call: times as UTC text that sorts, mappings as JSON text.

    On the path of every call; the row itself is made only where one is read.
    """
    facts = column_values(call)
    facts["started_at"] = timestamp(call.started_at)
    for name in JSON_COLUMNS:
        facts[name] = _encode(facts[name]) if facts[name] else "{}"
    if facts["speculation"] is not None:
        facts["speculation"] = _encode(facts["speculation"])
    return tuple(facts.values())


def encoded_rows(call: Call) -> list[RowValues]:
    """Return every row of a call: its own, and one for each try that may be billed without an answer."""
    own = encoded_row(call)
    return [own, *(_of_lost(own, n, call.lost[n]) for n in range(len(call.lost)))] if call.lost else [own]


def _of_lost(own: RowValues, number: int, lost: FailedAttempt) -> RowValues:
    """Return the row of a lost try: what its call asked for, and nothing of what that came to."""
    kept = {name: own[COLUMN_NAMES.index(name)] for name in _ASKED}
    facts = (
        dict.fromkeys(COLUMN_NAMES)
        | kept
        | {
            "id": f"{own[0]}-{number + 1}",
            "status": "error",
            "error": lost.error,
            "usage_estimated": False,
            "cost_by_kind": "{}",
            "price_source": "unknown: no answer came",
            "cost_estimated": True,
            "attempts": 0,
            "latency_s": _measure(lost.seconds) or 0.0,
            "decision": "{}",
            "parent": own[0],
            "purpose": "retry",
        }
    )
    return tuple(facts.values())


def column_values(call: Call) -> dict[str, Any]:
    """Return a call's figures by column, in their order; what no database can hold becomes None."""
    usage, speculation, cost = call.usage, call.speculation or _NO_SPECULATION, call.cost
    return {
        "id": _text(call.id),
        "started_at": call.started_at.astimezone(UTC),
        "operation": call.operation,
        "provider": _text(call.provider),
        "model": _text(call.model),
        "served_model": _text(call.served_model),
        "route": _text(call.route.chosen),
        "streamed": call.streamed,
        "status": call.status,
        "error": _text(call.error),
        "http_status": _count(call.http_status),
        "prompt_tokens": _count(usage.prompt),
        "completion_tokens": _count(usage.completion),
        "cached_tokens": _count(usage.cached),
        "cache_write_tokens": _count(usage.cache_write),
        "reasoning_tokens": _count(usage.reasoning),
        "usage_estimated": usage.estimated,
        "method": _text(speculation.method),
        "drafted": _count(speculation.drafted),
        "accepted": _count(speculation.accepted),
        "steps": _count(speculation.steps),
        "predicted_accepted": _count(_first(speculation.predicted_accepted, usage.accepted_prediction)),
        "predicted_rejected": _count(_first(speculation.predicted_rejected, usage.rejected_prediction)),
        "cost_nano": _count(cost.nano, _MOST_NANO),
        "cost_by_kind": nano_by_kind(cost),
        "price_source": _text(cost.source),
        "cost_estimated": cost.estimated,
        "attempts": call.attempts,
        "ttft_s": _measure(call.ttft_s),
        "latency_s": _measure(call.latency_s) or 0.0,
        "engine_s": _measure(call.engine_s),
        "request_id": _text(call.request_id),
        "tags": _texts(call.tags),
        "decision": _decision(call.route),
        "parent": _text(call.parent),
        "purpose": call.purpose,
        "strategy": call.strategy,
        "pair": _text(call.pair),
        "speculation": None if call.speculation is None else _speculation(call.speculation),
        "metadata": _texts(call.metadata),
        "session": _text(call.session),
    }


def timestamp(at: datetime) -> str:
    """Return a time as fixed-width UTC text, so that text order is time order. A naive time is local."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def nano_by_kind(cost: Cost) -> dict[str, int]:
    """Round each kind to whole nano-dollars so that they still sum to ``cost.nano`` (largest remainder)."""
    if cost.nano is None or abs(cost.nano) > _MOST_NANO:
        return {}
    exact = {kind: dollars * NANO for kind, dollars in cost.by_kind.items()}
    floors = {kind: int(nano.to_integral_value(ROUND_FLOOR)) for kind, nano in exact.items()}
    missing = cost.nano - sum(floors.values())
    if missing <= 0:
        return floors
    by_remainder = sorted(exact, key=lambda kind: exact[kind] - floors[kind], reverse=True)
    for kind in by_remainder[:missing]:
        floors[kind] += 1
    return floors


def _decision(route: Decision) -> dict[str, Any]:
    """Return why a route was taken: of many candidates, the first ones and the chosen one."""
    policy = route.policy
    kept = route.shortened(_CANDIDATES)
    told: dict[str, Any] = {
        "chosen": route.chosen,
        "reason": route.reason,
        "minimize": None,
        "candidates": [
            {
                "route": c.route,
                "cost": None if c.cost is None else str(c.cost),
                "latency_s": _measure(c.latency_s),
                "acceptance_rate": _measure(c.acceptance_rate),
                "evidence": c.evidence,
                "verdict": c.verdict,
                "reason": c.reason,
            }
            for c in kept
        ],
    }
    if policy is not None:
        minimize = policy.minimize
        told["minimize"] = minimize if isinstance(minimize, str) else dict(minimize)
        told |= {"task": route.task, "explored": route.explored, "considered": len(route.candidates)}
    return told


def _speculation(speculation: Speculation) -> dict[str, Any]:
    """Return what is known of it, in what JSON can hold."""
    known = {name: getattr(speculation, name) for name in Speculation.__slots__}
    known |= {name: _count(known[name]) for name in _COUNTS}
    known |= {name: _measure(known[name]) for name in ("acceptance_rate", "mean_accepted_length")}
    known |= {name: _text(known[name]) for name in ("method", "source")}
    if known["per_position"] is not None:
        known["per_position"] = [_measure(share) for share in known["per_position"]]
    return {name: value for name, value in known.items() if value is not None}


def _texts(labels: Mapping[str, str]) -> dict[str, str]:
    return {_text(str(name)): _text(str(value)) for name, value in labels.items()}


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


@overload
def _text(value: str) -> str: ...
@overload
def _text(value: str | None) -> str | None: ...
def _text(value: str | None) -> str | None:
    """Return text that every database can hold: no lone surrogates, no NUL."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _count(value: int | None, most: int = _MOST) -> int | None:
    return value if value is not None and -most <= value <= most else None


def _measure(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
