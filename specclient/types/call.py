"""The record of one call: what was asked, chosen, served, used, paid and waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import PrivateAttr

from specclient.types.base import WireModel
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage
from specclient.types.wire import FailedAttempt

CallStatus = Literal["open", "ok", "error", "cancelled"]
CallPurpose = Literal["call", "draft", "verify", "retry", "hedge", "failover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, as observers (ledger, estimates) and ``meta`` read it. Holds no prompt, reply or key.

    Attributes:
        id: ours, unique.
        started_at: UTC.
        model: as asked for; ``served_model``: as the answer names it.
        status: ``open`` while a stream runs; ``cancelled`` when the caller left early.
        error: class name of the failure; ``http_status``: its status, where it had one.
        attempts: tries it took, the first included.
        ttft_s: seconds to the first text, None if none came; ``latency_s``: seconds in all.
        engine_s: seconds the local engine worked on it, None for hosted calls.
        request_id: the provider's.
        parent: of a part of a call that a strategy played in several, or that was routed and came to several:
            the ``id`` of the whole.
        strategy: how speculation was played from this side, where the caller asked for it: the kind of
            :class:`specclient.types.strategy.Strategy` that it came to.
        strategy_reason: why that kind, and what became of it, in words.
        parts: of a call that came to several: every call that was made for it, each recorded by itself.
            Usage and cost of the whole are their sums; the whole is recorded by them alone.
        purpose: what it was made for: ``call`` where it is the caller's own, ``failover`` where it stands in
            for one that failed or goes on where one broke off, ``hedge`` where it set out beside a slow one.
        pair: the routes of target and draft where both are known, as ``target+draft``; of the engine in this
            process, its checkpoints, the target's by itself where no model drafted.
        metadata: the request's, as OpenAI defines it: short strings, chosen by the caller.
        session: what the caller counts this call to, where it said so.
        lost: tries before the last that were sent, and that no answer came to: they may have been billed.
    """

    id: str
    started_at: datetime
    operation: str
    model: str
    route: Decision
    streamed: bool = False
    served_model: str | None = None
    status: CallStatus = "open"
    error: str | None = None
    http_status: int | None = None
    usage: Usage = field(default_factory=Usage)
    speculation: Speculation | None = None
    cost: Cost = field(default_factory=Cost)
    attempts: int = 1
    ttft_s: float | None = None
    latency_s: float = 0.0
    engine_s: float | None = None
    request_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    strategy: str | None = None
    strategy_reason: str | None = None
    parts: tuple[Call, ...] = ()
    purpose: CallPurpose = "call"
    pair: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None
    lost: tuple[FailedAttempt, ...] = ()

    @property
    def provider(self) -> str:
        """The endpoint that served it."""
        return self.route.provider

    @property
    def serving_s(self) -> float:
        """Seconds of work on it: the engine's own where known, without loading and queueing, else all."""
        return self.latency_s if self.engine_s is None else self.engine_s


class MeteredModel(WireModel):  # noqa: PLW1641  # no pydantic model has a hash
    """A wire object that carries the record of its call as ``meta``: not on the wire, not in a dump."""

    _meta: Call | None = PrivateAttr(default=None)

    @property
    def meta(self) -> Call:
        """The record of the call that brought this object: ``cost``, ``speculation``, ``route``, timings.

        Raises:
            AttributeError: on an object that no call of this client brought.
        """
        if self._meta is None:
            raise AttributeError("this object was not returned by a specclient call, so it has no meta")
        return self._meta

    def attach_meta(self, call: Call) -> None:
        """Set the record that ``meta`` returns."""
        self._meta = call

    def __eq__(self, other: object) -> bool:
        """Tell whether both say the same, whichever calls brought them."""
        if not isinstance(other, MeteredModel):
            return NotImplemented
        names = type(self).model_fields
        return (
            type(self) is type(other)
            and all(getattr(self, name) == getattr(other, name) for name in names)
            and self.model_extra == other.model_extra
        )
