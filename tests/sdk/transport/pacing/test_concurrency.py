"""Places for requests under way: in order, across loops and threads, and fewer after a refusal."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specclient.transport.pacing.concurrency import ConcurrencyLimit, QueueWaiter

pytestmark = pytest.mark.anyio


async def take(slots: ConcurrencyLimit) -> None:
    if not slots.try_acquire():
        await slots.acquire()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_without_a_limit_everybody_enters() -> None:
    slots = ConcurrencyLimit()
    for _ in range(100):
        assert slots.try_acquire()
    slots.served()
    assert (slots.running, slots.limit) == (100, None)


async def test_who_asks_first_enters_first() -> None:
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
async def test_who_gives_up_leaves_its_place_to_the_next(granted: bool) -> None:
    slots = ConcurrencyLimit(1)
    await take(slots)
    first, second = (asyncio.create_task(take(slots)) for _ in range(2))
    await settle()
    if granted:
        slots.release()  # first is let in, and cancelled before it notices
    first.cancel()
    await settle()
    if not granted:
        slots.release()
    await second
    assert (slots.running, slots.waiting) == (1, 0)


async def test_a_wave_of_refusals_halves_once_and_rounds_without_one_raise_by_one() -> None:
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
        assert slots.limit is None or slots.limit < 32  # twice what ran when the first was refused


async def test_one_always_remains_and_a_fixed_limit_is_never_passed() -> None:
    slots = ConcurrencyLimit(4)
    for _ in range(4):
        await take(slots)
    for wave in range(10):
        slots.refused(sent=wave + 0.5, now=wave + 1.0)
    assert slots.limit == 1
    for _ in range(100):
        slots.served()
    assert slots.limit == 4


async def test_places_are_handed_on_between_threads() -> None:
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

    async def crowd() -> None:
        await asyncio.gather(*[work() for _ in range(4)])

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert not any(thread.is_alive() for thread in threads)
    assert (slots.running, slots.waiting, most[1]) == (0, 0, 2)


async def test_a_waiter_whose_loop_has_ended_takes_no_place() -> None:
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


async def test_a_crowd_may_give_up_in_any_order_at_the_cost_of_each_alone() -> None:
    """Counted, not timed: whoever leaves looks at nobody else."""
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
        patched.setattr("specclient.transport.pacing.concurrency.QueueWaiter", Counting)
        tasks += [asyncio.create_task(slots.acquire()) for _ in range(1000)]
        await settle()
    for task in reversed(tasks):
        task.cancel()
    await asyncio.wait(tasks)
    assert (slots.waiting, slots.running) == (0, 1)
    assert compared <= 1000
