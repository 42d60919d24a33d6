"""Encoding of values for the ledger's database: bounds, UTC times, and JSON.

``None`` means unknown. A value that no database can hold, such as an infinite duration, becomes None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_FLOOR
from typing import Any, Literal, overload

from pydantic_core import to_json

from specclient.types.criterion import CRITERIA
from specclient.types.route import Candidate, Decision
from specclient.types.usage import NANO, Cost, Speculation

__all__ = [
    "DECODERS",
    "ENCODERS",
    "MAX_COUNT",
    "MAX_NANO",
    "ColumnKind",
    "decision_json",
    "decision_values",
    "finite",
    "nano_by_kind",
    "plain_text",
    "speculation_values",
    "text_labels",
    "timestamp",
]

#: ``time``, ``json`` and ``json_or_null`` are stored as text; ``flag`` is true or false; ``small`` has 32
#: bits; ``count`` and ``nano`` (nano-dollars) have 64 bits; ``measure`` is a floating-point number.
ColumnKind = Literal["text", "time", "json", "json_or_null", "flag", "small", "count", "nano", "measure"]

#: Largest token count and cost (in nano-dollars, $900,000 per call) accepted from a server, so that sums over
#: many calls fit into 64 bits.
MAX_COUNT = 10**12
MAX_NANO = 9 * 10**14
#: Candidates of a routing decision that are stored with the call.
_CANDIDATES = 8
_SPECULATION_COUNTS = ("drafted", "accepted", "steps", "predicted_accepted", "predicted_rejected")


def timestamp(at: datetime) -> str:
    """Return a time as fixed-width UTC text, so that text order is time order. A naive time is local."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def finite(value: float | None) -> float | None:
    """Return a number if it is finite, else None."""
    return value if value is not None and math.isfinite(value) else None


@overload
def plain_text(value: str) -> str: ...
@overload
def plain_text(value: str | None) -> str | None: ...
def plain_text(value: str | None) -> str | None:
    """Return text that every database can hold: without lone surrogates and NUL characters."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def text_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return names and values, such as a call's tags, as text that every database can hold."""
    return {plain_text(str(name)): plain_text(str(value)) for name, value in labels.items()}


def _count(value: int) -> int | None:
    return value if -MAX_COUNT <= value <= MAX_COUNT else None


def _nano(value: int) -> int | None:
    return value if -MAX_NANO <= value <= MAX_NANO else None


def _json(value: Mapping[str, Any] | str) -> str:
    """Return JSON text; text is JSON already.

    pydantic's encoder takes a third of the time but refuses lone surrogates.
    """
    if isinstance(value, str):
        return value
    if not value:
        return "{}"
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value, separators=(",", ":"))


#: The function that encodes a known value of a call for the database, by kind of column; None: unchanged.
ENCODERS: Mapping[ColumnKind, Callable[[Any], Any] | None] = {
    "text": plain_text,
    "time": timestamp,
    "json": _json,
    "json_or_null": _json,
    "flag": None,
    "small": _count,
    "count": _count,
    "nano": _nano,
    "measure": finite,
}
#: The inverse of :data:`ENCODERS`.
DECODERS: Mapping[ColumnKind, Callable[[Any], Any] | None] = {
    "text": None,
    "time": datetime.fromisoformat,
    "json": lambda value: json.loads(value or "{}"),
    "json_or_null": lambda value: json.loads(value) if value else None,
    "flag": bool,
    "small": None,
    "count": None,
    "nano": None,
    "measure": None,
}


def nano_by_kind(cost: Cost) -> dict[str, int]:
    """Round each kind to whole nano-dollars so that they still sum to ``cost.nano`` (largest remainder)."""
    total = cost.nano
    if total is None or abs(total) > MAX_NANO:
        return {}
    exact = {kind: dollars * NANO for kind, dollars in cost.by_kind.items()}
    floors = {kind: int(nano.to_integral_value(ROUND_FLOOR)) for kind, nano in exact.items()}
    missing = total - sum(floors.values())
    if missing <= 0:
        return floors
    by_remainder = sorted(exact, key=lambda kind: exact[kind] - floors[kind], reverse=True)
    for kind in by_remainder[:missing]:
        floors[kind] += 1
    return floors


def decision_values(route: Decision) -> dict[str, Any]:
    """Return the reason for a route as values for JSON, with its first candidates and the chosen one."""
    policy = route.policy
    values: dict[str, Any] = {
        "chosen": route.chosen,
        "reason": route.reason,
        "minimize": None,
        "candidates": [
            {
                "route": c.route,
                "cost": None if c.cost is None else str(c.cost),
                "latency_s": finite(c.latency_s),
                "acceptance_rate": finite(c.acceptance_rate),
                "evidence": c.evidence,
                "verdict": c.verdict,
                "reason": c.reason,
            }
            | _added_figures(c)
            for c in route.shortened(_CANDIDATES)
        ],
    }
    if policy is not None:
        minimize = policy.minimize
        values["minimize"] = minimize if isinstance(minimize, str) else dict(minimize)
        values |= {"task": route.task, "explored": route.explored, "considered": len(route.candidates)}
    return values


#: The JSON of decisions for named models, by their identity, with the decisions: the calls of a named model
#: share one.
_named_decisions: dict[int, tuple[Decision, str]] = {}
_MOST_NAMED = 1024


def decision_json(route: Decision) -> str:
    """Return :func:`decision_values` as JSON."""
    if route.policy is not None:
        return _json(decision_values(route))
    known = _named_decisions.get(id(route))
    if known is None or known[0] is not route:
        if len(_named_decisions) >= _MOST_NAMED:  # names come from callers
            _named_decisions.clear()
        known = _named_decisions[id(route)] = route, _json(decision_values(route))
    return known[1]


def _added_figures(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate's values of the criteria without fields of their own; empty without any."""
    added = {name: value for name, value in candidate.figures.items() if name not in CRITERIA.with_fields}
    return {"figures": {name: finite(value) for name, value in added.items()}} if added else {}


def speculation_values(speculation: Speculation | None) -> dict[str, Any] | None:
    """Return the fields of a Speculation that are known, as values for JSON; None for None."""
    if speculation is None:
        return None
    known = {name: getattr(speculation, name) for name in Speculation.__slots__}
    known |= {name: _count(known[name]) for name in _SPECULATION_COUNTS if known[name] is not None}
    known |= {name: finite(known[name]) for name in ("acceptance_rate", "mean_accepted_length")}
    known |= {name: plain_text(known[name]) for name in ("method", "source")}
    if known["per_position"] is not None:
        known["per_position"] = [finite(share) for share in known["per_position"]]
    return {name: value for name, value in known.items() if value is not None}
