"""Readings that are repeated while calls are made: pages of metrics, addresses of replicas.

No call waits for a reading or fails because of it. A program without calls reads nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass

from specclient.runtime.backoff import doubled
from specclient.runtime.forks import register_fork_reset

__all__ = ["PeriodicReadings"]

#: The usual greatest seconds between two readings.
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
        most_s: the greatest seconds between them, after failed ones.
        jitter: the random share of these times, which keeps many programs from reading at the same moment.
        clock: returns monotonic seconds.
        chance: the random numbers for jitter.
    """

    def __init__(
        self,
        what: str,
        interval_s: float,
        *,
        most_s: float = _MOST_S,
        jitter: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._what = what
        self.interval_s = interval_s
        self._most_s = most_s
        self._jitter = jitter
        self._clock = clock
        self._chance = chance or random.Random()
        self._readings: dict[Hashable, _Reading] = {}
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget the readings in progress in a forked child, where the parent's tasks never end."""
        for reading in self._readings.values():
            reading.task = None

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

    def call_placed(self, keys: Iterable[Hashable] | None = None) -> None:
        """Start the readings that are due; takes microseconds. An event loop must be running.

        Args:
            keys: of the readings that the call needs; None for all.
        """
        now = self._clock()
        wanted = tuple(self._readings.values()) if keys is None else [self._readings[key] for key in keys]
        for reading in wanted:
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
        pause_s = doubled(self.interval_s, reading.failures, max(self._most_s, self.interval_s))
        reading.next_at = self._clock() + pause_s * self._chance.uniform(1 - self._jitter, 1 + self._jitter)
