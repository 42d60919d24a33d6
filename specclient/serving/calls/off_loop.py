"""Work on large requests in a thread, so that the event loop serves other clients meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from specclient.runtime.event_loop import run_in_thread
from specclient.serving.process_settings import FreedMemory

__all__ = ["OffLoop"]

T = TypeVar("T")

#: Bytes of a body up to which work takes about a millisecond, less than a thread would add under load.
_ON_LOOP = 64 * 2**10


class OffLoop:
    """Runs work on the bodies of one server's requests: on small ones at once, on large ones in a thread.

    Threads take turns: a parser holds the GIL until it is done, and several of them in a row would delay the
    event loop by the sum of their times.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._freed = FreedMemory()

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of ``work`` on a body of ``size`` bytes."""
        self._freed.note_request(size)
        if size <= _ON_LOOP:
            return work()
        async with self._turn:
            return await run_in_thread(work)

    async def run_async(self, size: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine on a body of ``size`` bytes.

        Args:
            work: returns the coroutine; for a large body it runs in an event loop of its thread.
        """
        if size <= _ON_LOOP:
            self._freed.note_request(size)
            return await work()
        return await self.run(size, lambda: asyncio.run(work()))
