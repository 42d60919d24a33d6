"""Readings that are repeated while calls are placed: pages of metrics, addresses of replicas.

No call waits for a reading or fails because of it. A program without calls reads nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from specclient.runtime.backoff import doubled

__all__ = ["PeriodicReadings"]

#: The greatest seconds between two readings, after failed ones.
_MOST_S = 60.0

_log = logging.getLogger("specclient")


@dataclass(slots=True)
class _Reading:
    read: Callable[[], Awaitable[None]]
    next_at: float
    failures: int = 0
    task: asyncio.Task[None] | None = None


class PeriodicReadings:
    """Repeats readings in the event loops of calls.

    Args:
        what: is read, for the log.
        interval_s: seconds between two readings of one kind.
        clock: returns monotonic seconds.
    """

    def __init__(self, what: str, interval_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self.interval_s = interval_s
        self._clock = clock
        self._readings: dict[Hashable, _Reading] = {}

    def add(self, key: Hashable, read: Callable[[], Awaitable[None]], *, after_s: float = 0.0) -> None:
        """Add a reading, or replace that of the key.

        Args:
            key: identifies it.
            read: reads once; an exception makes the next interval longer.
            after_s: seconds until the first one, so that many are not all due at once.
        """
        self._readings[key] = _Reading(read, self._clock() + after_s)

    def discard(self, key: Hashable) -> None:
        """Remove a reading."""
        self._readings.pop(key, None)

    def call_placed(self) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running."""
        now = self._clock()
        for reading in tuple(self._readings.values()):
            if now < reading.next_at:
                continue
            task = reading.task
            if task is None or task.done() or not task.get_loop().is_running():
                reading.task = asyncio.get_running_loop().create_task(self._read(reading))

    async def aclose(self) -> None:
        """Cancel the readings of the running event loop."""
        loop = asyncio.get_running_loop()
        tasks = [reading.task for reading in self._readings.values() if reading.task is not None]
        running = [task for task in tasks if not task.done() and task.get_loop() is loop]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _read(self, reading: _Reading) -> None:
        try:
            await reading.read()
        except Exception as error:  # noqa: BLE001 - no call depends on a reading
            _log.debug("%s cannot be read: %s", self._what, error)
            reading.failures += 1
        else:
            reading.failures = 0
        pause_s = doubled(self.interval_s, reading.failures, max(_MOST_S, self.interval_s))
        reading.next_at = self._clock() + pause_s
