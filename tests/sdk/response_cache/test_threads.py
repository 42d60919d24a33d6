"""Threads that use a store: results and failures, their number, and their end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specclient.response_cache import threads as module
from specclient.response_cache.threads import StoreThreads

pytestmark = pytest.mark.anyio


def running() -> int:
    return sum(thread.name == "specclient-cache" for thread in threading.enumerate())


async def test_results_and_failures_reach_the_caller():
    threads = StoreThreads(list)
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: 8) == 8
    threads.close()
    assert await threads.run(lambda: 9) == 9
    threads.close()
    assert running() == 0


async def test_one_thread_works_in_order_and_more_at_once():
    threads = StoreThreads(list)
    done: list[int] = []
    await asyncio.gather(*(threads.run(lambda n=n: done.append(n)) for n in range(50)))
    assert done == list(range(50))
    assert running() == 1
    threads.most = 4
    meeting = threading.Barrier(4)
    await asyncio.gather(*(threads.run(lambda: meeting.wait(30)) for _ in range(4)))
    assert running() == 4
    threads.close()


async def test_work_without_a_result_is_done_and_its_failure_dropped():
    threads = StoreThreads(list)
    done = threading.Event()
    threads.begin(lambda: 1 // 0)
    threads.begin(done.set)
    threads.close()
    assert done.is_set()


async def test_threads_end_without_work_and_start_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    idle = threading.Event()
    threads = StoreThreads(idle.set)
    await threads.run(lambda: None)
    assert await asyncio.to_thread(idle.wait, 30)
    while running():
        await asyncio.sleep(0.01)
    assert await threads.run(lambda: 5) == 5
    threads.close()


async def test_a_caller_that_has_left_does_no_harm():
    threads = StoreThreads(list)
    go_on = threading.Event()
    left = threads.run(lambda: go_on.wait(30))
    left.cancel()
    go_on.set()
    assert await threads.run(lambda: 5) == 5
    threads.close()
