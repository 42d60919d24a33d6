"""Call samples: the part of a finished call, or of its ledger row, that routes learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from specclient.types.call import BOOKED_LATER, Call
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy

if TYPE_CHECKING:
    from specclient.ledger.row import LedgerRow

__all__ = ["WARM_UP_TAG", "CallSample"]

#: The tag of calls that only measure a route: the lengths of their answers are not those of other calls.
WARM_UP_TAG = "route_warm"

#: The purposes of calls that return whole answers; others say nothing about the length of the next answer.
_WHOLE = frozenset({"call", "hedge", "failover"})
#: The HTTP status of a rate limit, and all below 500 that are failures of the route, not of the request.
_REFUSED = 429
_ITS_OWN = frozenset({408, 409, 425, _REFUSED})
#: Failures of the route without an HTTP status; the last two are events of a stream.
_WITHOUT_STATUS = frozenset(
    {
        "APIError", "APIConnectionError", "APITimeoutError", "APIResponseValidationError", "EngineError",
        "response.failed", "error",
    }
)  # fmt: skip
_TASKS = frozenset(get_args(PromptTask))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSample:
    """The measurements of one finished call, from which routes are learned.

    Attributes:
        route: the ``provider/model`` that served it.
        task: the kind of its prompt, None for a named model.
        at: when it ended, in seconds since the epoch.
        failed: whether the route failed. Invalid requests and calls that the caller left are no samples.
        refused: whether a rate limit refused it; ``failed`` is then True.
        ttft_s: seconds to the first token, None if it was not streamed.
        latency_s: seconds to the end.
        engine_s: seconds of the engine in this process, None for hosted calls.
        prompt_tokens, cached_tokens, written_tokens, completion_tokens: as billed; written ones to a cache;
            ``completion_tokens`` is None for drafts and verifications.
        drafted, accepted, steps: as in :class:`specclient.types.usage.Speculation`.
        session: the caller's session, None without one.
        warm_up: whether the call only measured the route; see :data:`WARM_UP_TAG`.
        policy: the policy of a routed call with a whole answer; None for others, and for ledger rows.
    """

    route: str
    at: float
    task: PromptTask | None = None
    failed: bool = False
    refused: bool = False
    ttft_s: float | None = None
    latency_s: float | None = None
    engine_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    completion_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    session: str | None = None
    warm_up: bool = False
    policy: Policy | None = None

    @classmethod
    def of(cls, call: Call) -> CallSample | None:
        """Return the sample of a finished call, None if it teaches nothing."""
        failed = _failed(call.status, call.http_status, call.error)
        if failed is None:
            return None
        speculation = call.speculation
        return cls(
            route=call.route.chosen,
            task=call.route.task,
            at=call.started_at.timestamp() + call.latency_s,
            failed=failed,
            refused=call.http_status == _REFUSED,
            ttft_s=call.ttft_s,
            latency_s=call.latency_s,
            engine_s=call.engine_s,
            prompt_tokens=call.usage.prompt,
            cached_tokens=call.usage.cached,
            written_tokens=call.usage.cache_write,
            completion_tokens=call.usage.completion if call.purpose in _WHOLE else None,
            drafted=None if speculation is None else speculation.drafted,
            accepted=None if speculation is None else speculation.accepted,
            steps=None if speculation is None else speculation.steps,
            session=call.session,
            warm_up=WARM_UP_TAG in call.tags,
            policy=call.route.policy if call.purpose in _WHOLE else None,
        )

    @classmethod
    def of_row(cls, row: LedgerRow) -> CallSample | None:
        """Return the sample of a ledger row, None if it teaches nothing."""
        failed = _failed(row.status, row.http_status, row.error)
        if failed is None or row.purpose == "retry":  # the row of the whole call states the outcome
            return None
        if row.cached or row.purpose in BOOKED_LATER:  # a call of these is kept away by `SharedState.record`
            return None
        task = row.decision.get("task")
        return cls(
            route=row.route,
            task=task if task in _TASKS else None,
            at=row.started_at.timestamp() + row.latency_s,
            failed=failed,
            refused=row.http_status == _REFUSED,
            ttft_s=row.ttft_s,
            latency_s=row.latency_s,
            engine_s=row.engine_s,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            written_tokens=row.cache_write_tokens,
            completion_tokens=row.completion_tokens if row.purpose in _WHOLE else None,
            drafted=row.drafted,
            accepted=row.accepted,
            steps=row.steps,
            session=row.session,
            warm_up=WARM_UP_TAG in row.tags,
        )


def _failed(status: str, http_status: int | None, error: str | None) -> bool | None:
    """Return whether the route failed a call, None if the outcome says nothing about the route."""
    if status == "ok":
        return False
    if status != "error":
        return None
    its_own = error in _WITHOUT_STATUS if http_status is None else http_status in _ITS_OWN
    return True if its_own or (http_status or 0) >= 500 else None
