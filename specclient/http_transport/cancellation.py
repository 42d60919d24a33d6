"""Cancellation of requests: by their deadline, or when their client is closed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from specclient.errors import APIError, ConfigurationError, DeadlineExceededError
from specclient.http_transport import errors
from specclient.types.wire import WireRequest

T = TypeVar("T")


class RequestCancelScope:
    """The scope of one request with all its attempts, which its deadline or ``Transport.aclose`` can end.

    To end a request, it cancels the reader's task and then withdraws the cancellation. Closing the
    connection would not suffice, because aiohttp would let the reader wait forever.

    Args:
        request: the request; its deadline counts from now.
        clock: returns monotonic seconds.

    Attributes:
        loop: the event loop of the request.
        attempts: the number of HTTP attempts started; set on every APIError that passes.
        failure: the error of the last failed attempt.

    Raises:
        ConfigurationError: the deadline is not a positive number of seconds.
    """

    __slots__ = (
        "_cancelled",
        "_clock",
        "_ended",
        "_ends_at",
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
        self._ends_at = None if deadline is None else clock() + _checked(deadline)
        self._task: asyncio.Task[Any] | None = None  # the task inside wait()
        self._cancelled = False
        self._ended = False

    async def wait(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``step``.

        Raises:
            APIConnectionError: :meth:`end` was called.
            DeadlineExceededError: the deadline passed first.
        """
        if not self._ended:
            task = self._task = asyncio.current_task()
            assert task is not None
            before = task.cancelling()
            try:
                return await (step() if self._ends_at is None else self._within_deadline(step, self._ends_at))
            except BaseException as error:
                if isinstance(error, APIError):
                    error.attempts = self.attempts
                    self.failure = None
                    for known in (error, error.__cause__):
                        if isinstance(known, APIError):
                            known.__traceback__ = (
                                None  # its frames hold it (a reference cycle) and the request's key
                            )
                if not self._cancelled or task.uncancel() > before:  # also cancelled by another task
                    raise
            finally:
                self._task = None
                # The task may keep the error that passes here, whose traceback holds this frame: a cycle.
                del task
        failure = errors.client_closed(self._request)
        failure.attempts = max(self.attempts, 1)
        try:
            raise failure
        finally:
            del failure  # as above

    def end(self) -> None:
        """End the request: a running :meth:`wait` and all later ones raise APIConnectionError."""
        if not self._ended:
            self._ended = True
            if self._task is not None:
                self._cancelled = self._task.cancel()

    def check_wait(self, seconds: float) -> None:
        """Raise DeadlineExceededError if a wait of ``seconds`` would end at the deadline or later."""
        if self._ends_at is not None and self._clock() + seconds >= self._ends_at:
            raise self._too_late(f"ends before a wait of {seconds:.3g} s would") from self.failure

    async def _within_deadline(self, step: Callable[[], Awaitable[T]], ends_at: float) -> T:
        limit = asyncio.timeout(None if math.isinf(ends_at) else max(0.0, ends_at - self._clock()))
        try:
            async with limit:
                return await step()
        except TimeoutError:
            if not limit.expired():
                raise
        raise self._too_late(f"passed in attempt {max(self.attempts, 1)}") from self.failure

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
