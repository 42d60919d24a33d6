"""Limits of time for blocks of asyncio code, cheaper than :func:`asyncio.timeout` where they are long.

``asyncio.timeout`` starts and cancels a timer of the event loop for each block. Limits of seconds that hardly
ever pass are watched by one timer for each event loop here, and end up to a quarter of a second late.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

__all__ = ["TimeLimit"]

#: Seconds from which a limit may end late, and seconds between two looks at such limits.
_LONG_S, _LOOK_S = 2.5, 0.25


class TimeLimit:
    """A context, not asynchronous, whose block is cancelled after some seconds and then raises TimeoutError.

    As with :func:`asyncio.timeout`, a cancellation from elsewhere is raised as it is.

    Args:
        seconds: None for no limit.

    Attributes:
        expired: whether the time has passed within the block.
    """

    __slots__ = ("_cancels_before", "_seconds", "_task", "_timer", "_watch", "ends_at", "expired")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._watch: _Watch | None = None
        self.expired = False

    def __enter__(self) -> Self:
        seconds = self._seconds
        if seconds is None:
            return self
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancels_before = task, task.cancelling()
        if seconds < _LONG_S:
            self._timer = loop.call_later(seconds, self.expire)
        else:
            self.ends_at = loop.time() + seconds
            self._watch = watch = _watch_of(loop)
            watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        elif self._watch is not None:
            self._watch.running.pop(self, None)
        if self.expired:
            is_ours = self._task.uncancel() <= self._cancels_before
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the block."""
        self.expired = True
        self._task.cancel()


class _Watch:
    """The long limits of one event loop.

    Attributes:
        loop: the event loop.
        running: the limits whose blocks run.
    """

    __slots__ = ("_timer", "loop", "running")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running: dict[TimeLimit, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, limit: TimeLimit) -> None:
        self.running[limit] = None
        if self._timer is None:
            self._timer = self.loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        now = self.loop.time()
        for limit in [limit for limit in self.running if limit.ends_at <= now]:
            del self.running[limit]
            limit.expire()
        self._timer = self.loop.call_later(_LOOK_S, self._look) if self.running else None


class _LocalWatch(threading.local):
    """The watch of the event loop that runs in this thread, or ran in it last."""

    watch: _Watch | None = None


_local = _LocalWatch()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _local.watch
    if watch is None or watch.loop is not loop:
        watch = _local.watch = _Watch(loop)
    return watch
