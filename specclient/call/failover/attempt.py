"""Turn a decision into the legs of one call: who is asked, in what order, in the time that is left."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from specclient.call.failover.causes import (
    FailoverScope,
    context_window_of,
    error_label,
    failover_scope,
    rejected_before_send,
)
from specclient.call.subcalls import ParentCall, Subcall, account
from specclient.errors import (
    ConfigurationError,
    DeadlineExceededError,
    NotFoundError,
    OpenAIError,
    UnsupportedParameterError,
)
from specclient.providers import Endpoint
from specclient.routing.destinations import DestinationRegistry
from specclient.runtime.event_loop import run_in_thread
from specclient.types.call import Call, CallPurpose, CallStatus
from specclient.types.request import Request
from specclient.types.route import Alternative, Decision

T = TypeVar("T")

#: What ties a request to the provider that has what it refers to.
_HELD_THERE = ("previous_response_id", "conversation")


class Attempt(NamedTuple):
    """One try: with whom, what for, and why it is made; None where that is what was decided."""

    to: Alternative
    purpose: CallPurpose = "call"
    why: str | None = None


@dataclass(slots=True, kw_only=True)
class RoutedCall(ParentCall):
    """A routed call on its way.

    Attributes:
        decision: as it was made.
        places: where its routes lead.
        clock: monotonic seconds.
        limit_s: for the call with all its tries, None for no end; the call's own wins.
        several: whether it has come to more than one call.
        spoken: whether the caller has some of the answer.
        continued: tells, of what broke off an answer that the caller has some of, whether others go on.
        tried: routes that failed, and with what, in words.
    """

    decision: Decision
    places: DestinationRegistry
    clock: Callable[[], float]
    limit_s: float | None = None
    several: bool = False
    spoken: bool = False
    continued: Callable[[BaseException | None], bool] | None = None
    tried: list[str] = field(default_factory=list)
    _waiting: list[Alternative] | None = None
    _error: OpenAIError | None = None

    @classmethod
    def of(
        cls, request: Request, decision: Decision, places: DestinationRegistry, clock: Callable[[], float]
    ) -> RoutedCall:
        """Return the trip of a request for which the decision has just been made."""
        limit, policy = request.options.deadline_s, decision.policy
        if limit is None and policy is not None:
            limit = policy.deadline_s
        return cls(
            id=uuid.uuid4().hex,
            kind=None,
            request=request,
            route=decision,
            started_at=datetime.now(UTC),
            begun=clock(),
            decision=decision,
            places=places,
            clock=clock,
            limit_s=limit,
        )

    @property
    def first(self) -> Attempt:
        """Return the leg that was decided on."""
        return Attempt(self.decision.first)

    @property
    def falls_back(self) -> bool:
        """Whether others are asked where one fails."""
        policy = self.decision.policy
        return policy is None or policy.falls_back

    @property
    def waiting(self) -> list[Alternative]:
        """Who has not been asked yet, best first; only those who can be."""
        if self._waiting is None:
            self._waiting = [each for each in self.decision.alternatives if self._is_asked(each)]
        return self._waiting

    @property
    def may_follow(self) -> bool:
        """Whether others may be asked where the first fails; of many candidates without finding out who."""
        if not self.falls_back:
            return False
        known = isinstance(self.decision.alternatives, tuple) or self._waiting is not None
        return bool(self.waiting) if known else len(self.decision.candidates) > 1

    def _is_asked(self, other: Alternative) -> bool:
        """Tell whether somebody may serve this request instead of the chosen route."""
        request, decision = self.request, self.decision
        if other.route == decision.chosen and other.strategy == self.first.to.strategy:
            return False
        if request.method.files:  # read once
            return False
        if request.operation == "embedding":  # vectors of another model mean something else
            return _bare(other.model) == _bare(decision.model)
        given = {**request.params, **request.options.body}
        return other.provider == decision.provider or not any(given.get(name) for name in _HELD_THERE)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of them."""
        limit = self.limit_s
        return None if limit is None else limit - (self.clock() - self.begun)

    def ask(self, leg: Attempt, request: Request | None = None) -> tuple[Request, Subcall]:
        """Return what a leg sends, by default what the caller asked for, and what ties it to this call.

        Raises:
            DeadlineExceededError: no time is left for it.
        """
        if request is None:
            request, strategy = self.request, leg.to.strategy
            if request.strategy is None and strategy is not None:
                request = replace(request, strategy=strategy)
        left, limit = self.left_s, request.options.deadline_s
        if left is not None and left <= 0:
            raise self.too_late()
        if left is not None and (limit is None or leg.why is not None):
            request = replace(request, options=replace(request.options, deadline_s=left))
        if leg.why is None:
            return request, Subcall(whole=self, route=self.decision)
        self.several = True
        return _unkeyed(request), Subcall(whole=self, route=self.routed(leg), purpose=leg.purpose)

    def routed(self, leg: Attempt) -> Decision:
        """Return the decision by which a leg goes where it does."""
        if leg.why is None:
            return self.decision
        chosen, reason = self.decision.chosen, self.decision.reason
        return self.decision.moved(
            leg.to,
            reason=f"{leg.why}; {chosen} was chosen as {reason}",
            left=f"chosen at first: {reason}; then {leg.to.route} {leg.why}",
        )

    async def within(self, leg: Attempt, work: Awaitable[T]) -> T:
        """Return what ``work`` returns; the transport knows of deadlines, engines in this process do not.

        Raises:
            DeadlineExceededError: the time is over first.
        """
        left = self.left_s
        if left is None or self._is_sent(leg):
            return await work
        limit = asyncio.timeout(max(left, 0.0))
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        raise self.too_late()

    def _is_sent(self, leg: Attempt) -> bool:
        return isinstance(self.places.get(leg.to.provider), Endpoint)

    def too_late(self) -> DeadlineExceededError:
        """Return the error for a call whose time is over."""
        tried = f" Tried: {'; '.join(self.tried)}." if self.tried else ""
        return DeadlineExceededError(
            message=f"Request timed out. The deadline of {self.limit_s:g} s is over; pass a larger "
            f"deadline_s= if it needs longer.{tried}"
        )

    def alone(self, error: BaseException | None) -> bool:
        """Tell whether a part that ended so is all that there is of the call; see :class:`ParentCall`."""
        return not self.several and (error is None or not self._goes_on(error))

    def _goes_on(self, error: BaseException) -> bool:
        """Tell whether somebody else is asked after an error."""
        if self.spoken:
            return self.continued is not None and self.continued(error)
        asked, first = failover_scope(error), self.decision
        if not self._may_ask(asked):
            return False
        if asked == "elsewhere":
            return any(each.provider != first.provider for each in self.waiting)
        other = isinstance(error, UnsupportedParameterError)
        return any(other or each.route != first.chosen for each in self.waiting)

    def _may_ask(self, asked: FailoverScope) -> bool:
        left = self.left_s
        return asked != "nobody" and self.falls_back and (left is None or left > 0)

    def beside(self, leg: Attempt) -> Alternative | None:
        """Return who may race with a leg, None where nobody is left; not its own route, played otherwise."""
        for place, each in enumerate(self.waiting):
            if each.route != leg.to.route:
                return self.waiting.pop(place)
        return None

    def failed(self, leg: Attempt, error: OpenAIError) -> None:
        """Note what a leg came to."""
        self.tried.append(f"{leg.to.route} ({error_label(error)})")
        if self._error is None or (rejected_before_send(self._error) and not rejected_before_send(error)):
            self._error = error

    async def next(self, leg: Attempt, error: OpenAIError) -> Attempt | None:
        """Return who is asked after a leg that failed, None where nobody is."""
        asked = failover_scope(error)
        if not self._may_ask(asked):
            return None
        if not isinstance(error, UnsupportedParameterError):  # of a route played otherwise, too
            self.waiting[:] = [each for each in self.waiting if each.route != leg.to.route]
        if asked == "elsewhere":
            self.waiting[:] = [each for each in self.waiting if each.provider != leg.to.provider]
        elif asked == "longer":
            await self._keep_longer(leg.to)
        if not self.waiting:
            return None
        return Attempt(self.waiting.pop(0), "failover", f"in place of {', '.join(self.tried)}")

    async def _keep_longer(self, than: Alternative) -> None:
        """Let wait only those whose context is known to be longer than one that was too short."""
        asked = [than, *self.waiting]
        known, *others = await run_in_thread(lambda: [self._context(each) for each in asked])
        self.waiting[:] = [
            each
            for each, context in zip(self.waiting, others, strict=True)
            if context is not None and (known is None or context > known)
        ]

    def _context(self, to: Alternative) -> int | None:
        try:
            return context_window_of(self.places.get(to.provider), to.model)
        except (NotFoundError, ConfigurationError):
            return None

    def verdict(self, error: OpenAIError) -> OpenAIError:
        """Return the error that a call ends with: the first that came from where it was sent to.

        Where several were tried, a note lists them.
        """
        chosen, self._error = self._error or error, None
        if len(self.tried) > 1:
            chosen.add_note(f"Tried, in this order: {'; '.join(self.tried)}.")
        return chosen

    def account(self, status: CallStatus, *, ttft_s: float | None = None, error: str | None = None) -> Call:
        """Return the record of the call, where it has come to several."""
        latency_s = self.clock() - self.begun
        return account(self, status=status, latency_s=latency_s, ttft_s=ttft_s, error=error)


def _bare(model: str) -> str:
    """Return a model's name without whose it is, which aggregators write before it."""
    return model.rpartition("/")[2].lower()


def _unkeyed(request: Request) -> Request:
    """Return a request without the idempotency key, which is that of what was sent first."""
    headers = request.options.headers
    if not any(name.lower() == "idempotency-key" for name in headers):
        return request
    kept = {name: value for name, value in headers.items() if name.lower() != "idempotency-key"}
    return replace(request, options=replace(request.options, headers=kept))
