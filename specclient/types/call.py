"""The record of one call: request, route, usage, cost and timings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from pydantic import PrivateAttr

from specclient.runtime.frozen_dict import FrozenDict
from specclient.types.base import WireModel
from specclient.types.route import Decision
from specclient.types.usage import Cost, Speculation, Usage
from specclient.types.wire import FailedAttempt

CallStatus = Literal["open", "ok", "error", "cancelled"]
CallPurpose = Literal["call", "draft", "verify", "retry", "hedge", "failover", "batch", "object"]

#: Purposes of records that are made after the work, of which no latency is known.
BOOKED_LATER: Final = frozenset({"batch", "object"})

#: The purposes of calls, and of parts of calls, that wrote the answer which the caller got.
ANSWERING: frozenset[CallPurpose] = frozenset({"call", "hedge", "failover", "verify"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The record of one call, for ``meta``, the ledger and the estimates. It holds no prompt, answer or key.

    A call may consist of several subcalls: strategies, failover and hedging make them.

    Attributes:
        id: the call's unique id, assigned by the client.
        started_at: the start, in UTC.
        operation: the method's name in the ledger: ``chat``, ``completion``, …
        model: the model that was requested; ``served_model``: the model that the response names.
        route: the destination, and why it was chosen.
        status: ``open`` while a stream runs; ``cancelled`` if the caller stopped early.
        error: the class name of the exception; ``http_status``: the status of the response.
        attempts: the number of attempts, including the first.
        ttft_s: seconds to the first text, None without text; ``latency_s``: seconds in total.
        engine_s: seconds the local engine worked on it; None for hosted calls.
        request_id: the provider's id of the request.
        parent: for a subcall, the ``id`` of the call that it belongs to.
        strategy: the kind of :class:`specclient.types.strategy.Strategy` that was used, if one was requested.
        strategy_reason: why that kind was used, and its outcome, in words.
        parts: the subcalls, each recorded on its own. Usage and cost of the call are their sums; a call with
            subcalls has no record of its own in the ledger.
        purpose: why it was made: ``call`` by the caller; ``failover`` in place of a failed call, or to
            continue one that broke off; ``hedge`` in parallel to a slow one; ``draft`` and ``verify`` as
            parts of a strategy; ``retry`` for an attempt in ``lost_attempts``; ``batch`` as a line of a
            vendor's batch job; ``object`` for something that a vendor bills by itself, such as a container.
            Of these two no latency is known.
        pair: the routes of target and draft as ``target+draft``, if both are known. For the engine in this
            process, the checkpoints; the target's alone if no model drafted.
        metadata: the request's ``metadata``, as OpenAI defines it.
        session: the session that the caller named.
        lost_attempts: failed attempts before the last that were sent without a response; they may have been
            billed.
        counts: further counts of the answer, by the name of their figure in the ledger (``Counted`` in
            :mod:`specclient.ledger.figures`). A count that is unknown, or that answers of this kind cannot
            have, is missing.
        cached: whether the response cache answered it, or an equal call in flight; it was then not sent, used
            no tokens and cost nothing.
        saved: of such a call, what the answer cost when it was made, in dollars; None if that is not known.
        in_progress: the mean number of requests in progress meanwhile on the replica of a fleet's pool that
            served it, itself included; None elsewhere, and in ``meta``.
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
    lost_attempts: tuple[FailedAttempt, ...] = ()
    counts: Mapping[str, int] = FrozenDict()
    cached: bool = False
    saved: Decimal | None = None
    in_progress: float | None = None

    @property
    def provider(self) -> str:
        """The provider that served the call."""
        return self.route.provider

    @property
    def serving_s(self) -> float:
        """Seconds of work: the engine's, without loading and queueing, if known; else ``latency_s``."""
        return self.latency_s if self.engine_s is None else self.engine_s


class MeteredModel(WireModel):  # noqa: PLW1641  # no pydantic model has a hash
    """A response object with the record of its call as ``meta``, which is not part of its JSON."""

    _meta: Call | None = PrivateAttr(default=None)

    @property
    def meta(self) -> Call:
        """The record of the call that returned this object: ``cost``, ``speculation``, ``route``, timings.

        Raises:
            AttributeError: the object was not returned by a call.
        """
        if self._meta is None:
            raise AttributeError("this object was not returned by a specclient call, so it has no meta")
        return self._meta

    def attach_meta(self, call: Call) -> None:
        """Set the record that ``meta`` returns."""
        self._meta = call

    def __eq__(self, other: object) -> bool:
        """Return whether type and fields are equal; the calls that returned the objects may differ."""
        if not isinstance(other, MeteredModel):
            return NotImplemented
        names = type(self).model_fields
        return (
            type(self) is type(other)
            and all(getattr(self, name) == getattr(other, name) for name in names)
            and self.model_extra == other.model_extra
        )
