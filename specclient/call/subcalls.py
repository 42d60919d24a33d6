"""Groups sub-calls under one parent call, and sums their records.

A call that fails over or uses a strategy makes several sub-calls. Each has its own record in the ledger; the
parent's record holds their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from specclient.call.call_fields import MERGE_RULES, request_fields
from specclient.types.call import Call, CallPurpose, CallStatus
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.strategy import StrategyKind
from specclient.types.usage import NANO, Cost, Speculation, Usage

__all__ = ["ParentCall", "Subcall", "parent_record", "total_cost", "total_usage"]

_FINAL_FIELDS = [name for name, rule in MERGE_RULES.items() if rule == "final"]


@dataclass(slots=True, kw_only=True)
class ParentCall:
    """A user's call, for which sub-calls are made.

    Attributes:
        strategy: the strategy that is used; None for none.
        started_s: reading of the monotonic clock at the start.
        parts: the records of finished sub-calls.
    """

    id: str
    strategy: StrategyKind | None
    request: Request
    route: Decision
    started_at: datetime
    started_s: float
    parts: list[Call] = field(default_factory=list)

    def is_sole_subcall(self, error: BaseException | None) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the sub-call that ends now is the only one of this call.

        It is then recorded as the call itself and not as a part of it.

        Args:
            error: what ended the sub-call; None for success.
        """
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcall:
    """The relation of one recorded call to its parent call.

    Attributes:
        strategy, strategy_reason: noted in its record.
        parent: the call that it is a part of; None for an independent call.
        route: its destination; None to have it decided.
        purpose, pair: noted in its record.
    """

    strategy: StrategyKind | None = None
    strategy_reason: str | None = None
    parent: ParentCall | None = None
    route: Decision | None = None
    purpose: CallPurpose = "call"
    pair: str | None = None

    def open_record(self, call: Call) -> Call:
        """Return the record of the running sub-call, tagged with its parent."""
        return self._tagged(call, self._parent_id(None))

    def finish(self, call: Call, error: BaseException | None) -> Call:
        """Return the record of the finished sub-call, and add it to its parent."""
        call = self._tagged(call, self._parent_id(error))
        if self.parent is not None:
            self.parent.parts.append(call)
        return call

    def _tagged(self, call: Call, parent_id: str | None) -> Call:
        if parent_id is None and self.strategy is None and self.purpose == "call" and self.pair is None:
            return call
        return replace(
            call,
            parent=parent_id,
            strategy=self.strategy,
            strategy_reason=self.strategy_reason,
            purpose=self.purpose,
            pair=self.pair or call.pair,
        )

    def _parent_id(self, error: BaseException | None) -> str | None:
        parent = self.parent
        return None if parent is None or parent.is_sole_subcall(error) else parent.id


def parent_record(
    parent: ParentCall,
    *,
    status: CallStatus,
    latency_s: float,
    ttft_s: float | None,
    error: str | None,
    speculation: Speculation | None = None,
    strategy_reason: str | None = None,
) -> Call:
    """Return the record of a call that made sub-calls: their summed usage and cost, and its own times.

    Each field follows its rule in :data:`specclient.call.call_fields.MERGE_RULES`.

    Args:
        latency_s: seconds from start to end.
        ttft_s: seconds to the first text; None where there was none.
        error: class name of the error that ended the call; None without one.
        speculation: the call's own; None for that of the last sub-call on its route.
        strategy_reason: why the strategy was chosen, and how it went.
    """
    parts = tuple(parent.parts)
    last = parts[-1] if parts else None
    on_route = [part for part in parts if part.route.chosen == parent.route.chosen]
    values: dict[str, Any] = request_fields(parent.request)
    if on_route:
        values |= {name: getattr(on_route[-1], name) for name in _FINAL_FIELDS}
    values |= {
        "id": parent.id,
        "started_at": parent.started_at,
        "route": parent.route,
        "status": status,
        "error": error,
        "http_status": last.http_status if last and error else None,
        "usage": total_usage([part.usage for part in parts if not _is_unused(part)]),
        "speculation": speculation or values.get("speculation"),
        "cost": total_cost([part.cost for part in parts]),
        "attempts": sum(part.attempts for part in parts) or 1,
        "ttft_s": ttft_s,
        "latency_s": latency_s,
        "engine_s": _sum([part.engine_s for part in parts if part.engine_s is not None]),
        "strategy": parent.strategy,
        "strategy_reason": strategy_reason,
        "parts": parts,
    }
    return Call(**values)


def _is_unused(part: Call) -> bool:
    """Return whether a sub-call is known to have used nothing: it was refused, or never sent."""
    return part.status == "error" and part.cost.nano == 0 and part.usage == Usage()


def total_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum of usages.

    Prompt and completion tokens are unknown where one of them is. A detail, such as cached tokens, is the
    sum over those that report it, and unknown where none does. The kind of traffic is kept if all share it.
    """
    prompt, completion = _sum([u.prompt for u in usages]), _sum([u.completion for u in usages])
    not_details = ("prompt", "completion", "estimated", "charges", "traffic", "units")
    details = [each.name for each in fields(Usage) if each.name not in not_details]
    sums = {
        name: _sum([value for u in usages if (value := getattr(u, name)) is not None]) for name in details
    }
    kinds = {u.traffic for u in usages}
    return Usage(
        prompt=prompt,
        completion=completion,
        estimated=any(u.estimated for u in usages),
        traffic=kinds.pop() if len(kinds) == 1 else None,
        units=tuple(unit for u in usages for unit in u.units),
        **sums,
    )


def total_cost(costs: Sequence[Cost]) -> Cost:
    """Return the sum of costs, each rounded to the nano-dollar as the ledger stores it.

    So a parent's record always equals the sum of its parts' rows in the ledger. The total is unknown where
    one of the costs is.
    """
    tiers = {cost.tier for cost in costs}
    tier = tiers.pop() if len(tiers) == 1 else None
    saved = [cost.cache_saved for cost in costs if cost.cache_saved is not None]
    cache_saved = sum(saved, Decimal(0)) if saved else None
    sources = "; ".join(dict.fromkeys(cost.source for cost in costs)) or "no calls were made"
    estimated = any(cost.estimated for cost in costs)
    nanos = [cost.nano for cost in costs]
    if any(nano is None for nano in nanos):
        return Cost(source=sources, estimated=estimated, tier=tier, cache_saved=cache_saved)
    by_kind: dict[str, Decimal] = {}
    for cost, nano in zip(costs, nanos, strict=True):
        rest = Decimal(nano or 0) / NANO
        for kind, dollars in cost.by_kind.items():
            rounded = min(Decimal(int((dollars * NANO).to_integral_value())) / NANO, rest)
            by_kind[kind] = by_kind.get(kind, Decimal(0)) + rounded
            rest -= rounded
        if rest and cost.by_kind:  # the rounding error goes to the largest kind
            largest = max(cost.by_kind, key=lambda kind: cost.by_kind[kind])
            by_kind[largest] += rest
    total = sum((Decimal(n or 0) for n in nanos), Decimal(0)) / NANO
    return Cost(total, by_kind, sources, estimated, tier, cache_saved)


def _sum(values: Sequence[Any]) -> Any:
    """Return the sum; None where a value is None, or where there are no values."""
    return None if not values or any(value is None for value in values) else sum(values)
