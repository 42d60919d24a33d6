"""The state of one routed call: its attempts, the routes that are left, its deadline and its failures."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from specclient.call.failover.causes import (
    FailoverScope,
    error_label,
    failover_scope,
    rejected_before_send,
)
from specclient.call.request_params import request_param, without_idempotency_key
from specclient.call.subcalls import ParentCall, Subcall, parent_record
from specclient.errors import (
    ConfigurationError,
    DeadlineExceededError,
    NotFoundError,
    OpenAIError,
    UnsupportedParameterError,
)
from specclient.providers import Endpoint
from specclient.routing.destinations import Destination, DestinationRegistry, engine_context
from specclient.runtime.event_loop import run_in_thread
from specclient.types.call import Call, CallPurpose, CallStatus
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Alternative, Decision

T = TypeVar("T")

#: Parameters that refer to data which only one provider has.
_STORED_AT_PROVIDER = ("previous_response_id", "conversation")


class Attempt(NamedTuple):
    """One attempt of a routed call.

    Attributes:
        to: the route.
        purpose: noted in the record.
        reason: why it is made; None for the attempt on the route that was decided first.
    """

    to: Alternative
    purpose: CallPurpose = "call"
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class RoutedCall(ParentCall):
    """A routed call with all its attempts.

    Attributes:
        decision: the routing decision, which lists the alternatives.
        destinations: the destinations of its routes.
        clock: monotonic seconds.
        deadline_s: seconds for all attempts together, None for no deadline. The call's own ``deadline_s``
            takes precedence over the policy's.
        has_subcalls: whether more than one attempt has been made.
        output_started: whether the caller has received some of the answer.
        can_resume: takes the error that broke off an answer; returns whether another route continues it.
        failures: routes that failed, each with the error's label.
    """

    decision: Decision
    destinations: DestinationRegistry
    clock: Callable[[], float]
    deadline_s: float | None = None
    has_subcalls: bool = False
    output_started: bool = False
    can_resume: Callable[[BaseException | None], bool] | None = None
    failures: list[str] = field(default_factory=list)
    _untried: list[Alternative] | None = None
    _error: OpenAIError | None = None

    @classmethod
    def begin(
        cls,
        request: Request,
        decision: Decision,
        destinations: DestinationRegistry,
        clock: Callable[[], float],
    ) -> RoutedCall:
        """Return the state of a call whose route has just been decided."""
        deadline_s, policy = request.options.deadline_s, decision.policy
        if deadline_s is None and policy is not None:
            deadline_s = policy.deadline_s
        return cls(
            id=uuid.uuid4().hex,
            strategy=None,
            request=request,
            route=decision,
            started_at=datetime.now(UTC),
            started_s=clock(),
            decision=decision,
            destinations=destinations,
            clock=clock,
            deadline_s=deadline_s,
        )

    # Routes

    @property
    def first(self) -> Attempt:
        """The attempt on the route that was decided."""
        return Attempt(self.decision.first)

    @property
    def fails_over(self) -> bool:
        """Whether the policy allows failover."""
        policy = self.decision.policy
        return policy is None or policy.falls_back

    @property
    def untried(self) -> list[Alternative]:
        """The usable routes that have not been tried, best first."""
        if self._untried is None:
            self._untried = [each for each in self.decision.alternatives if self._is_usable(each)]
        return self._untried

    @property
    def may_fail_over(self) -> bool:
        """Whether another route may be tried if the first fails; avoids ranking alternatives to find out."""
        if not self.fails_over:
            return False
        is_ranked = isinstance(self.decision.alternatives, tuple) or self._untried is not None
        return bool(self.untried) if is_ranked else len(self.decision.candidates) > 1

    def _is_usable(self, other: Alternative) -> bool:
        """Return whether a route can serve this request instead of the chosen one."""
        request, decision = self.request, self.decision
        if other.route == decision.chosen and other.strategy == self.first.to.strategy:
            return False
        if request.method.files:  # a file can be read only once
            return False
        if request.operation == "embedding":  # vectors of different models cannot be compared
            return _model_name(other.model) == _model_name(decision.model)
        return other.provider == decision.provider or not any(
            request_param(request, name) for name in _STORED_AT_PROVIDER
        )

    async def next_attempt(self, attempt: Attempt, error: OpenAIError) -> Attempt | None:
        """Return the attempt that follows a failed one; None where there is none."""
        scope = failover_scope(error)
        if not self._may_follow(scope):
            return None
        if not isinstance(error, UnsupportedParameterError):  # the same route may work without its strategy
            self.untried[:] = [each for each in self.untried if each.route != attempt.to.route]
        if scope == "other_provider":
            self.untried[:] = [each for each in self.untried if each.provider != attempt.to.provider]
        elif scope == "longer_context":
            await self._keep_longer_contexts(attempt.to)
        if not self.untried:
            return None
        return Attempt(self.untried.pop(0), "failover", f"in place of {', '.join(self.failures)}")

    def take_hedge(self, attempt: Attempt) -> Alternative | None:
        """Return the route of a hedge to an attempt, always another route; None where there is none."""
        for index, each in enumerate(self.untried):
            if each.route != attempt.to.route:
                return self.untried.pop(index)
        return None

    def _may_follow(self, scope: FailoverScope) -> bool:
        remaining_s = self.remaining_s
        return scope != "none" and self.fails_over and (remaining_s is None or remaining_s > 0)

    async def _keep_longer_contexts(self, failed: Alternative) -> None:
        """Keep only the untried routes whose context is known to be longer than the failed one's."""
        routes = [failed, *self.untried]
        limit, *windows = await run_in_thread(lambda: [self._context_window(each) for each in routes])
        self.untried[:] = [
            each
            for each, window in zip(self.untried, windows, strict=True)
            if window is not None and (limit is None or window > limit)
        ]

    def _context_window(self, to: Alternative) -> int | None:
        try:
            return _context_window_of(self.destinations.get(to.provider), to.model)
        except (NotFoundError, ConfigurationError):
            return None

    # Requests

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline; None for no deadline."""
        deadline_s = self.deadline_s
        return None if deadline_s is None else deadline_s - (self.clock() - self.started_s)

    def request_for(self, attempt: Attempt, request: Request | None = None) -> tuple[Request, Subcall]:
        """Return the request that an attempt sends, and its relation to this call.

        Args:
            request: what to send; None for the caller's request.

        Raises:
            DeadlineExceededError: no time is left.
        """
        if request is None:
            request, strategy = self.request, attempt.to.strategy
            if request.strategy is None and strategy is not None:
                request = replace(request, strategy=strategy)
        remaining_s, deadline_s = self.remaining_s, request.options.deadline_s
        if remaining_s is not None and remaining_s <= 0:
            raise self.deadline_error()
        options = request.options
        if remaining_s is not None and (deadline_s is None or attempt.reason is not None):
            options = replace(options, deadline_s=remaining_s)
        if attempt.reason is None:
            return _with_options(request, options), Subcall(parent=self, route=self.decision)
        self.has_subcalls = True
        return _with_options(request, without_idempotency_key(options)), Subcall(
            parent=self, route=self.decision_for(attempt), purpose=attempt.purpose
        )

    def decision_for(self, attempt: Attempt) -> Decision:
        """Return the decision with an attempt's route as the chosen one."""
        if attempt.reason is None:
            return self.decision
        chosen, reason = self.decision.chosen, self.decision.reason
        return self.decision.moved(
            attempt.to,
            reason=f"{attempt.reason}; {chosen} was chosen as {reason}",
            left=f"chosen at first: {reason}; then {attempt.to.route} {attempt.reason}",
        )

    async def with_deadline(self, attempt: Attempt, work: Awaitable[T]) -> T:
        """Await work within the deadline.

        The transport enforces the deadline of HTTP requests itself; engines in this process do not.

        Raises:
            DeadlineExceededError: the time is over first.
        """
        remaining_s = self.remaining_s
        if remaining_s is None or isinstance(self.destinations.get(attempt.to.provider), Endpoint):
            return await work
        timeout = asyncio.timeout(max(remaining_s, 0.0))
        try:
            async with timeout:
                return await work
        except TimeoutError:
            if not timeout.expired():
                raise
        raise self.deadline_error()

    def deadline_error(self) -> DeadlineExceededError:
        """Return the error for a call whose deadline has passed."""
        tried = f" Tried: {'; '.join(self.failures)}." if self.failures else ""
        return DeadlineExceededError(
            message=f"Request timed out. The deadline of {self.deadline_s:g} s is over; pass a larger "
            f"deadline_s= if it needs longer.{tried}"
        )

    # Outcome

    def is_sole_subcall(self, error: BaseException | None) -> bool:
        """Return whether an attempt that ends now is all of this call; see :class:`ParentCall`."""
        return not self.has_subcalls and (error is None or not self._continues_after(error))

    def _continues_after(self, error: BaseException) -> bool:
        """Return whether another attempt follows an error."""
        if self.output_started:
            return self.can_resume is not None and self.can_resume(error)
        scope, decided = failover_scope(error), self.decision
        if not self._may_follow(scope):
            return False
        if scope == "other_provider":
            return any(each.provider != decided.provider for each in self.untried)
        same_route = isinstance(error, UnsupportedParameterError)
        return any(same_route or each.route != decided.chosen for each in self.untried)

    def note_failure(self, attempt: Attempt, error: OpenAIError) -> None:
        """Note that an attempt failed."""
        self.failures.append(f"{attempt.to.route} ({error_label(error)})")
        if self._error is None or (rejected_before_send(self._error) and not rejected_before_send(error)):
            self._error = error

    def final_error(self, error: OpenAIError) -> OpenAIError:
        """Return the error that the call raises: the first that a server caused, else the first.

        After several failures, a note lists all of them.

        Args:
            error: the last failure.
        """
        chosen, self._error = self._error or error, None
        if len(self.failures) > 1:
            chosen.add_note(f"Tried, in this order: {'; '.join(self.failures)}.")
        return chosen

    def record(self, status: CallStatus, *, ttft_s: float | None = None, error: str | None = None) -> Call:
        """Return the record of a call that made several attempts."""
        latency_s = self.clock() - self.started_s
        return parent_record(self, status=status, latency_s=latency_s, ttft_s=ttft_s, error=error)


def _with_options(request: Request, options: PerCallOptions) -> Request:
    return request if options is request.options else replace(request, options=options)


def _model_name(model: str) -> str:
    """Return a model's name without the vendor prefix that aggregators write before it."""
    return model.rpartition("/")[2].lower()


def _context_window_of(destination: Destination, model: str) -> int | None:
    """Return a model's context window in tokens; None where unknown. May read the price catalogue's file."""
    if not isinstance(destination, Endpoint):
        return engine_context(destination, model)
    if destination.price_provider is None:
        return None
    from specclient.prices.catalogue import find_model  # noqa: PLC0415 - only after an overflow

    found = find_model(destination.price_provider, model)
    return None if found is None else found.model.context_window
