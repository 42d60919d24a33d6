"""Turn the calls that one call of a user's comes to into its parts, and their records into its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from specclient.call.decode import CallResult
from specclient.call.stream import AsyncStream
from specclient.routing.router import Router
from specclient.types.call import Call, CallPurpose, CallStatus
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.strategy import StrategyKind
from specclient.types.usage import NANO, Cost, Speculation, Usage

__all__ = ["ParentCall", "StrategyPipeline", "Subcall", "account", "total_cost", "total_usage"]


@dataclass(slots=True, kw_only=True)
class ParentCall:
    """The call of a user's, as its parts are tied to it.

    Attributes:
        kind: the strategy that plays it, None where none does.
        begun: in seconds of the clock.
    """

    id: str
    kind: StrategyKind | None
    request: Request
    route: Decision
    started_at: datetime
    begun: float
    parts: list[Call] = field(default_factory=list)

    def alone(self, error: BaseException | None) -> bool:  # noqa: ARG002 - for those of which it depends
        """Tell whether a part that ended with this, or None, is all that there is of the call.

        It is then recorded as the call itself, and not as a part of one.
        """
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcall:
    """What ties a call to the one that it was made for.

    Attributes:
        kind, reason: noted in its record.
        whole: the call it is a part of; None where the strategy came to sending it as it is.
        route: where it goes; None to have that decided.
        purpose, pair: noted in its record.
    """

    kind: StrategyKind | None = None
    reason: str | None = None
    whole: ParentCall | None = None
    route: Decision | None = None
    purpose: CallPurpose = "call"
    pair: str | None = None

    def marked(self, call: Call, parent: str | None) -> Call:
        """Return a call's record with what it is a part of."""
        if parent is None and self.kind is None and self.purpose == "call" and self.pair is None:
            return call  # of itself alone
        return replace(
            call,
            parent=parent,
            strategy=self.kind,
            strategy_reason=self.reason,
            purpose=self.purpose,
            pair=self.pair or call.pair,
        )

    def running(self, call: Call) -> Call:
        """Return the record of a part under way."""
        return self.marked(call, self._parent(None))

    def ended(self, call: Call, error: BaseException | None) -> Call:
        """Return the record of a finished part, and count it in."""
        call = self.marked(call, self._parent(error))
        if self.whole is not None:
            self.whole.parts.append(call)
        return call

    def _parent(self, error: BaseException | None) -> str | None:
        return None if self.whole is None or self.whole.alone(error) else self.whole.id


class StrategyPipeline(Protocol):
    """What serves single calls; see :class:`specclient.call.pipeline.Pipeline`."""

    router: Router

    async def send(self, request: Request, part: Subcall) -> CallResult:
        """Serve a request whole."""
        ...

    async def send_stream(self, request: Request, part: Subcall) -> AsyncStream[Any]:
        """Serve a request as a stream; returns once the answer has begun."""
        ...

    async def ensure_ready(self, kind: str) -> None:
        """Do what the first request of a kind needs."""
        ...


def account(
    whole: ParentCall,
    *,
    status: CallStatus,
    latency_s: float,
    ttft_s: float | None,
    error: str | None,
    speculation: Speculation | None = None,
    reason: str | None = None,
) -> Call:
    """Return the record of a call that came to several: sums of theirs, its own times.

    Args:
        speculation: its own; None leaves that of the last answer of its route.
        reason: why it was played as it was, and what became of it.
    """
    parts = tuple(whole.parts)
    last = parts[-1] if parts else None
    served = [part for part in parts if part.route.chosen == whole.route.chosen]
    final = served[-1] if served else None
    return Call(
        id=whole.id,
        started_at=whole.started_at,
        operation=whole.request.operation,
        model=whole.request.model,
        route=whole.route,
        streamed=whole.request.stream,
        served_model=final.served_model if final else None,
        status=status,
        error=error,
        http_status=last.http_status if last and error else None,
        usage=total_usage([part.usage for part in parts if not _refused(part)]),
        speculation=speculation or (final.speculation if final else None),
        cost=total_cost([part.cost for part in parts]),
        attempts=sum(part.attempts for part in parts) or 1,
        ttft_s=ttft_s,
        latency_s=latency_s,
        engine_s=_sum([part.engine_s for part in parts if part.engine_s is not None] or [None]),
        request_id=final.request_id if final else None,
        tags=dict(whole.request.options.tags),
        session=whole.request.options.session,
        strategy=whole.kind,
        strategy_reason=reason,
        parts=parts,
    )


def _refused(part: Call) -> bool:
    """Tell whether a part used nothing, and that is known: it was refused, or never sent."""
    return part.status == "error" and part.cost.nano == 0 and part.usage == Usage()


def total_usage(parts: Sequence[Usage]) -> Usage:
    """Return the sum of what parts used; a kind that one of them does not tell of its own is unknown."""
    prompt, completion = _sum([p.prompt for p in parts]), _sum([p.completion for p in parts])
    whole = ("prompt", "completion", "estimated", "charges")
    beside = [each.name for each in fields(Usage) if each.name not in whole]
    told = {name: [v for p in parts if (v := getattr(p, name)) is not None] for name in beside}
    sums = {name: _sum(values or [None]) for name, values in told.items()}
    return Usage(prompt=prompt, completion=completion, estimated=any(p.estimated for p in parts), **sums)


def total_cost(parts: Sequence[Cost]) -> Cost:
    """Return the sum of what parts cost, each rounded to the nano-dollar as the ledger keeps it.

    So the record of the whole and the ledger's rows of its parts always agree. It is unknown where that of
    one part is.
    """
    sources = "; ".join(dict.fromkeys(part.source for part in parts)) or "no calls were made"
    estimated = any(part.estimated for part in parts)
    nanos = [part.nano for part in parts]
    if any(nano is None for nano in nanos):
        return Cost(source=sources, estimated=estimated)
    by_kind: dict[str, Decimal] = {}
    for part, nano in zip(parts, nanos, strict=True):
        rest = Decimal(nano or 0) / NANO
        for kind, dollars in part.by_kind.items():
            rounded = min(Decimal(int((dollars * NANO).to_integral_value())) / NANO, rest)
            by_kind[kind] = by_kind.get(kind, Decimal(0)) + rounded
            rest -= rounded
        if rest and part.by_kind:
            kind = max(part.by_kind, key=lambda each: part.by_kind[each])
            by_kind[kind] += rest
    return Cost(sum((Decimal(n or 0) for n in nanos), Decimal(0)) / NANO, by_kind, sources, estimated)


def _sum(values: Sequence[Any]) -> Any:
    return None if not values or any(value is None for value in values) else sum(values)
