"""Fixtures of the transport's tests: a virtual clock that advances only when tasks sleep."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable

import pytest

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z
_TURNS = 20  # iterations of the event loop after which every ready task has run


class VirtualTime:
    """A clock from 0 that advances when all tasks sleep; sleepers wake in the order of their wake times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.seconds

    def now(self) -> float:
        return NOW + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.seconds + seconds, len(self.pauses), future))
        await future

    async def run(self, *tasks: Awaitable[object], until: float = float("inf")) -> list[object]:
        """Run the tasks, advancing the clock to ``until`` at most; return their results or exceptions."""
        running = [asyncio.ensure_future(task) for task in tasks]
        while not all(task.done() for task in running):
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._sleepers and self._sleepers[0][0] <= until:
                wake, _, future = heapq.heappop(self._sleepers)
                self.seconds = max(self.seconds, wake)
                if not future.done():
                    future.set_result(None)
            elif not all(task.done() for task in running):
                self.seconds = min(until, 1e9)
                break
        return await asyncio.gather(*[t for t in running if t.done()], return_exceptions=True)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()
