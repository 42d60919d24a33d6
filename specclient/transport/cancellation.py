"""Turn the closing of a client, and a deadline, into an error for whoever is waiting for an answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from specclient.errors import APIError, ConfigurationError, DeadlineExceededError
from specclient.transport import errors
from specclient.types.wire import WireRequest

T = TypeVar("T")


class RequestCancelScope:
    """Watches over one request, all its tries: lets ``Transport.aclose`` or its deadline end it.

    By cancelling the reader's task and taking the cancellation back: closing the connection beneath a reader
    is not enough, since aiohttp then lets it wait for ever.

    Args:
        clock: seconds, monotonic; the request's deadline counts from now.

    Attributes:
        attempts: tries begun; every APIError that passes carries the number.
        failure: what the last try that failed raised.

    Raises:
        ConfigurationError: for a deadline that is no number of seconds.
    """

    __slots__ = (
        "_cancelled",
        "_clock",
        "_ended",
        "_ends",
        "_request",
        "_task",
        "attempts",
        "failure",
        "loop",
    )

    def __init__(self, request: WireRequest, clock: Callable[[], float]) -> None:
        self.loop = asyncio.get_running_loop()
        self.attempts = 0
        self.failure: APIError | None = None
        self._request = request
        self._clock = clock
        deadline = request.deadline_s
        self._ends = None if deadline is None else clock() + _checked(deadline)
        self._task: asyncio.Task[Any] | None = None  # waits now
        self._cancelled = False
        self._ended = False

    async def wait(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return what ``step`` returns.

        Raises:
            APIConnectionError: once the guard has been ended.
            DeadlineExceededError: where the deadline passes first.
        """
        if not self._ended:
            task = self._task = asyncio.current_task()
            assert task is not None
            before = task.cancelling()
            try:
                return await (step() if self._ends is None else self._within_deadline(step, self._ends))
            except BaseException as error:
                if isinstance(error, APIError):
                    error.attempts = self.attempts
                    self.failure = None
                    for known in (error, error.__cause__):
                        if isinstance(known, APIError):
                            known.__traceback__ = None  # its frames hold it, a circle, and the request's key
                if not self._cancelled or task.uncancel() > before:  # whoever else cancels the task is obeyed
                    raise
            finally:
                self._task = None
                del task  # it may keep the error that passes here, whose traceback holds this frame: a circle
        failure = errors.client_closed(self._request)
        failure.attempts = max(self.attempts, 1)
        try:
            raise failure
        finally:
            del failure  # as above

    def end(self) -> None:
        """Break the wait, now and later."""
        if not self._ended:
            self._ended = True
            if self._task is not None:
                self._cancelled = self._task.cancel()

    def check_wait(self, seconds: float) -> None:
        """Raise DeadlineExceededError where a wait of ``seconds`` would end at the deadline or later."""
        if self._ends is not None and self._clock() + seconds >= self._ends:
            raise self._too_late(f"is over before a wait of {seconds:.3g} s would be") from self.failure

    async def _within_deadline(self, step: Callable[[], Awaitable[T]], ends: float) -> T:
        limit = asyncio.timeout(None if math.isinf(ends) else max(0.0, ends - self._clock()))
        try:
            async with limit:
                return await step()
        except TimeoutError:
            if not limit.expired():
                raise
        raise self._too_late(f"was over in try {max(self.attempts, 1)}") from self.failure

    def _too_late(self, what: str) -> DeadlineExceededError:
        last = "" if self.failure is None else f" The last failure: {self.failure.message}"
        return DeadlineExceededError(
            None if self.failure is None else self.failure.request,
            message=f"Request timed out. The deadline of {round(self._request.deadline_s or 0.0, 3):g} s for "
            f"{errors.origin_of(self._request.url)} {what}; pass a larger deadline_s= if it needs "
            f"longer.{last}",
        )


def _checked(deadline: object) -> float:
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not deadline > 0:
        raise ConfigurationError(
            f"deadline_s is {deadline!r}; it must be seconds, more than 0, or None for none"
        )
    return deadline if math.isfinite(deadline) else math.inf
