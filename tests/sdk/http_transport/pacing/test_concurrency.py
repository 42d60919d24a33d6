"""The concurrency limit: slots in FIFO order, across loops and threads, and fewer after a 429."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specclient.http_transport.pacing.concurrency import ConcurrencyLimit, QueueWaiter

pytestmark = pytest.mark.anyio


async def take(slots: ConcurrencyLimit) -> None:
    if not slots.try_acquire():
        await slots.acquire()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_without_a_limit_every_request_gets_a_slot() -> None:
    slots = ConcurrencyLimit()
    for _ in range(100):
        assert slots.try_acquire()
    slots.served()
    assert (slots.running, slots.limit) == (100, None)


async def test_slots_are_granted_in_fifo_order() -> None:
    slots, order = ConcurrencyLimit(1), []
    await take(slots)

    async def enter(name: int) -> None:
        await take(slots)
        order.append(name)
        slots.release()

    tasks = [asyncio.create_task(enter(name)) for name in range(5)]
    await settle()
    assert (order, slots.waiting) == ([], 5)
    assert not slots.try_acquire()
    slots.release()
    await asyncio.wait(tasks)
    assert (order, slots.running) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_waiter_passes_its_slot_to_the_next(granted: bool) -> None:
    slots = ConcurrencyLimit(1)
    await take(slots)
    first, second = (asyncio.create_task(take(slots)) for _ in range(2))
    await settle()
    if granted:
        slots.release()  # first gets the slot, and is cancelled before it runs
    first.cancel()
    await settle()
    if not granted:
        slots.release()
    await second
    assert (slots.running, slots.waiting) == (1, 0)


async def test_concurrent_refusals_halve_the_limit_once_and_each_full_round_of_successes_adds_one() -> None:
    slots = ConcurrencyLimit()
    for _ in range(16):
        await take(slots)
    for _ in range(16):
        slots.refused(sent=1.0, now=2.0)
    assert slots.limit == 8
    slots.refused(sent=3.0, now=4.0)
    assert slots.limit == 4
    for _ in range(4):
        slots.served()
    assert 4.8 < slots.limit < 5
    while slots.limit is not None:
        slots.served()
        assert slots.limit is None or slots.limit < 32  # twice the requests running at the first refusal


async def test_the_limit_is_at_least_one_and_never_above_a_fixed_limit() -> None:
    slots = ConcurrencyLimit(4)
    for _ in range(4):
        await take(slots)
    for wave in range(10):
        slots.refused(sent=wave + 0.5, now=wave + 1.0)
    assert slots.limit == 1
    for _ in range(100):
        slots.served()
    assert slots.limit == 4


async def test_slots_are_passed_between_threads() -> None:
    slots, most, lock = ConcurrencyLimit(2), [0, 0], threading.Lock()

    async def work() -> None:
        for _ in range(50):
            await take(slots)
            with lock:
                most[0] += 1
                most[1] = max(most)
            await asyncio.sleep(0)
            with lock:
                most[0] -= 1
            slots.release()

    async def work_in_four_tasks() -> None:
        await asyncio.gather(*[work() for _ in range(4)])

    threads = [threading.Thread(target=lambda: asyncio.run(work_in_four_tasks())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert not any(thread.is_alive() for thread in threads)
    assert (slots.running, slots.waiting, most[1]) == (0, 0, 2)


async def test_a_waiter_of_a_closed_loop_takes_no_slot() -> None:
    slots = ConcurrencyLimit(1)
    await take(slots)
    loop = asyncio.new_event_loop()
    task = loop.create_task(slots.acquire())
    await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0))
    assert slots.waiting == 1
    task._log_destroy_pending = False
    await asyncio.to_thread(loop.close)
    slots.release()
    assert slots.running == 0
    task.get_coro().close()


async def test_cancelling_a_waiter_takes_constant_time_in_any_order() -> None:
    """Comparisons are counted, not timed: a cancelled waiter is not compared with the others."""
    slots, compared = ConcurrencyLimit(1), 0

    class Counting(QueueWaiter):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += self is not other
            return self is other

        __hash__ = QueueWaiter.__hash__

    await take(slots)
    tasks = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("specclient.http_transport.pacing.concurrency.QueueWaiter", Counting)
        tasks += [asyncio.create_task(slots.acquire()) for _ in range(1000)]
        await settle()
    for task in reversed(tasks):
        task.cancel()
    await asyncio.wait(tasks)
    assert (slots.waiting, slots.running) == (0, 1)
    assert compared <= 1000
