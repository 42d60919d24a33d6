"""Hits: calls that are answered without being made, whole or as streams, and their records."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from specclient.call.cached.answers import chunks_of, dollars, result_of
from specclient.call.call_fields import request_fields
from specclient.call.recorded_calls import started
from specclient.call.result import CallResult
from specclient.call.stream import AsyncStream
from specclient.errors import APIError
from specclient.response_cache.answer import CachedAnswer
from specclient.runtime.forks import import_lock
from specclient.types.call import Call, CallStatus
from specclient.types.request import Request
from specclient.types.route import Candidate, Decision
from specclient.types.usage import Cost, Usage

__all__ = ["Hits"]

#: Chunks of a kept stream that are handed over together.
_BATCH = 64
_FREE = Cost(Decimal(0), {}, "response cache")
_NOTHING_USED = Usage(prompt=0, completion=0)


class Hits:
    """Answers calls with kept answers, and records them.

    Args:
        prepare: prepares what the observers of records write to.
        report: gives a finished call to the observers.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[None]],
        report: Callable[[Call], Awaitable[None]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._prepare, self._report, self._clock = prepare, report, clock

    async def result(
        self, request: Request, answer: CachedAnswer, decision: Decision | None, begun_s: float
    ) -> CallResult | None:
        """Return a kept answer as the result of a call; None if it cannot be decoded any more.

        Args:
            decision: the route of a named model; None for a routed call.
            begun_s: when the call began, in monotonic seconds.
        """
        try:
            result = result_of(request, answer)
        except (APIError, ValueError):
            return None
        await self._prepare()
        call = self._record(request, answer, decision, begun_s, "ok")
        await self._ended(request, call)
        result.value.attach_meta(call)
        return result

    async def stream(
        self, request: Request, answer: CachedAnswer, decision: Decision | None, begun_s: float
    ) -> AsyncStream[Any] | None:
        """Return a kept stream, in the original's chunks; see :meth:`result`."""
        try:
            chunks = chunks_of(request, answer)
        except (APIError, ValueError):
            return None
        await self._prepare()

        def record(status: CallStatus) -> Call:
            return self._record(request, answer, decision, begun_s, status)

        replay = _CachedStream(chunks, record, lambda call: self._ended(request, call))
        stream = await started(replay.batches(), replay.meta)
        stream.cached = True
        return stream

    async def _ended(self, request: Request, call: Call) -> None:
        if "opentelemetry.trace" in sys.modules:
            with import_lock:
                from specclient.call.tracing import note_hit  # noqa: PLC0415 - only in programs that trace

            note_hit(request, call)
        await self._report(call)

    def _record(
        self,
        request: Request,
        answer: CachedAnswer,
        decision: Decision | None,
        begun_s: float,
        status: CallStatus,
    ) -> Call:
        return Call(
            **request_fields(request),
            id=os.urandom(16).hex(),
            started_at=datetime.now(UTC),
            route=decision or _decision_of(answer.route, answer.provider, answer.model),
            served_model=answer.served_model,
            status=status,
            usage=_NOTHING_USED,
            cost=_FREE,
            attempts=0,
            latency_s=self._clock() - begun_s,
            request_id=answer.request_id,
            counts=dict(answer.counts),
            cached=True,
            saved=dollars(answer.cost_nano),
        )


class _CachedStream:
    """A kept stream that is read again, and its record."""

    def __init__(
        self,
        chunks: Sequence[Any],
        record: Callable[[CallStatus], Call],
        report: Callable[[Call], Awaitable[None]],
    ) -> None:
        self._chunks, self._record, self._report = chunks, record, report
        self._closed: Call | None = None

    def meta(self) -> Call:
        """Return the record, complete once the stream has ended."""
        return self._closed or self._record("open")

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield what a stream is opened with, then lists of chunks."""
        status: CallStatus = "cancelled"
        try:
            yield None, None
            for start in range(0, len(self._chunks), _BATCH):
                yield list(self._chunks[start : start + _BATCH])
            status = "ok"
        finally:
            self._closed = self._record(status)
            await self._report(self._closed)


@lru_cache(maxsize=256)
def _decision_of(route: str, provider: str, model: str) -> Decision:
    """Return the decision for a routed call that the cache answered."""
    reason = "answered from the response cache; no route was chosen"
    candidate = Candidate(route=route, verdict="chosen", reason=reason)
    return Decision(chosen=route, provider=provider, model=model, candidates=(candidate,), reason=reason)
