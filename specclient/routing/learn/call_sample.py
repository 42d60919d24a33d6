"""Turn a finished call, or its row in the ledger, into what it teaches about its route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from specclient.types.call import Call
from specclient.types.route import Policy, PromptTask

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow

__all__ = ["CallSample"]

#: What calls are made for that answer as any other; what else a call is played in says nothing of the next.
_WHOLE = frozenset({"call", "hedge", "failover"})
#: Failures that say something of the route, and not of what was asked of it.
_ITS_OWN = frozenset({408, 409, 425, 429})
#: The same, of failures that no status came with; the last two are events by which a stream tells of its own.
_WITHOUT_STATUS = frozenset(
    {
        "APIError", "APIConnectionError", "APITimeoutError", "APIResponseValidationError", "EngineError",
        "response.failed", "error",
    }
)  # fmt: skip
_TASKS = frozenset(get_args(PromptTask))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSample:
    """What one finished call teaches.

    Attributes:
        route: ``provider/model`` that served it; ``task``: what its prompt was taken for, None where nobody
            asked.
        at: when it ended, seconds since the epoch.
        failed: whether the route failed it; what the caller asked wrongly, or left, is no sample at all.
        ttft_s: seconds to the first token, None where it was not streamed; ``latency_s``: in all.
        engine_s: seconds of the engine in this process, None for hosted calls.
        prompt_tokens, completion_tokens: as billed; no completion of what was only drafted or verified.
        drafted, accepted, steps: as in :class:`specclient.types.usage.Speculation`.
        session: what the caller counts the call to, None where it said nothing.
        policy: that it was routed by; None of a model that was named, of what is no whole answer, and of a
            row.
    """

    route: str
    at: float
    task: PromptTask | None = None
    failed: bool = False
    ttft_s: float | None = None
    latency_s: float | None = None
    engine_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    session: str | None = None
    policy: Policy | None = None

    @classmethod
    def of(cls, call: Call) -> CallSample | None:
        """Return what a finished call teaches, None where that is nothing."""
        failed = _failed(call.status, call.http_status, call.error)
        if failed is None:
            return None
        told = call.speculation
        return cls(
            route=call.route.chosen,
            task=call.route.task,
            at=call.started_at.timestamp() + call.latency_s,
            failed=failed,
            ttft_s=call.ttft_s,
            latency_s=call.latency_s,
            engine_s=call.engine_s,
            prompt_tokens=call.usage.prompt,
            completion_tokens=call.usage.completion if call.purpose in _WHOLE else None,
            drafted=None if told is None else told.drafted,
            accepted=None if told is None else told.accepted,
            steps=None if told is None else told.steps,
            session=call.session,
            policy=call.route.policy if call.purpose in _WHOLE else None,
        )

    @classmethod
    def of_row(cls, row: LedgerRow) -> CallSample | None:
        """Return what a call that the ledger keeps teaches, None where that is nothing."""
        failed = _failed(row.status, row.http_status, row.error)
        if failed is None or row.purpose == "retry":  # a lost try: its call tells how that ended
            return None
        task = row.decision.get("task")
        return cls(
            route=row.route,
            task=task if task in _TASKS else None,
            at=row.started_at.timestamp() + row.latency_s,
            failed=failed,
            ttft_s=row.ttft_s,
            latency_s=row.latency_s,
            engine_s=row.engine_s,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens if row.purpose in _WHOLE else None,
            drafted=row.drafted,
            accepted=row.accepted,
            steps=row.steps,
            session=row.session,
        )


def _failed(status: str, http_status: int | None, error: str | None) -> bool | None:
    """Tell whether a route served a call, None where its end says nothing of the route."""
    if status == "ok":
        return False
    if status != "error":
        return None
    its_own = error in _WITHOUT_STATUS if http_status is None else http_status in _ITS_OWN
    return True if its_own or (http_status or 0) >= 500 else None
