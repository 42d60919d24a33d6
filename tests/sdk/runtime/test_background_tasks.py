"""Background tasks end with the client, whichever event loop runs them, and a forked child has none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specclient.runtime.background_tasks import BackgroundTasks

pytestmark = pytest.mark.anyio


async def forever(ended: threading.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


async def test_tasks_of_this_and_other_loops_are_cancelled() -> None:
    tasks, own, other = BackgroundTasks(), threading.Event(), threading.Event()
    begun = threading.Event()

    async def elsewhere() -> None:
        tasks.begin(forever(other))
        await asyncio.sleep(0)
        begun.set()
        while tasks:
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    await asyncio.to_thread(begun.wait, 10)
    tasks.begin(forever(own))
    await asyncio.sleep(0)
    assert len(tasks) == 2
    await tasks.end()
    assert own.is_set()
    assert await asyncio.to_thread(other.wait, 10)
    await asyncio.to_thread(thread.join, 10)
    assert not tasks
    await tasks.end()


async def test_a_forked_child_forgets_the_tasks_of_its_parent() -> None:
    tasks, ended = BackgroundTasks(), threading.Event()
    tasks.begin(forever(ended))
    running = tasks._tasks
    tasks.reset_after_fork()
    assert not tasks
    for task in running:
        task.cancel()
