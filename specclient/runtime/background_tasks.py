"""Tasks that go on after the call that began them, and end with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from specclient.runtime.forks import register_fork_reset

__all__ = ["BackgroundTasks"]


class BackgroundTasks:
    """The tasks in progress, of any number of event loops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Forget the tasks in a forked child: the parent's event loops run them."""
        self._tasks = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the running event loop; its exceptions are its own concern."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Cancel all tasks, and wait for those of the running event loop to record what they did."""
        loop, own = asyncio.get_running_loop(), []
        for task in list(self._tasks):
            if task.get_loop() is loop:
                task.cancel()
                own.append(task)
            elif not task.get_loop().is_closed():
                task.get_loop().call_soon_threadsafe(task.cancel)
        await asyncio.gather(*own, return_exceptions=True)
