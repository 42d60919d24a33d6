"""Turn the closing of a client into an error for whoever is waiting for one of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from specclient.errors import APIError
from specclient.transport import failures
from specclient.types.wire import WireRequest

T = TypeVar("T")


class Guard:
    """Lets ``Transport.aclose`` end one request, whatever its reader is waiting for.

    By cancelling the reader's task and taking the cancellation back: closing the connection beneath a reader
    is not enough, since aiohttp then lets it wait for ever.

    Attributes:
        attempts: tries begun; every APIError that passes carries the number.
    """

    __slots__ = ("_cancelled", "_ended", "_request", "_task", "attempts", "loop")

    def __init__(self, request: WireRequest) -> None:
        self.loop = asyncio.get_running_loop()
        self.attempts = 0
        self._request = request
        self._task: asyncio.Task[Any] | None = None  # waits now
        self._cancelled = False
        self._ended = False

    async def wait(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return what ``step`` returns; raises APIConnectionError once the guard has been ended."""
        if not self._ended:
            task = self._task = asyncio.current_task()
            assert task is not None
            before = task.cancelling()
            try:
                return await step()
            except BaseException as error:
                if isinstance(error, APIError):
                    error.attempts = self.attempts
                if not self._cancelled or task.uncancel() > before:  # whoever else cancels the task is obeyed
                    raise
            finally:
                self._task = None
        failure = failures.client_closed(self._request)
        failure.attempts = max(self.attempts, 1)
        raise failure

    def end(self) -> None:
        """Break the wait, now and later."""
        if not self._ended:
            self._ended = True
            if self._task is not None:
                self._cancelled = self._task.cancel()
