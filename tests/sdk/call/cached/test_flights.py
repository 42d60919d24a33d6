"""Equal calls in flight: one is made, nobody hangs, and a failed leader is followed by another one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specclient.call.cached import flights as module
from specclient.call.cached.flights import ALONE, LEADS, Flights

pytestmark = pytest.mark.anyio


async def waiting(flights: Flights, number: int, patience_s: float = 60.0) -> list[asyncio.Task]:
    """Start calls with the key `k` that wait for the leader."""
    tasks = [asyncio.create_task(flights.join("k", patience_s)) for _ in range(number)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def outcomes(tasks: list[asyncio.Task]) -> list[object]:
    return [(await task)[1] for task in tasks]


async def test_all_who_wait_get_the_leaders_answer():
    flights = Flights()
    flight, outcome = await flights.join("k", 60)
    assert outcome is LEADS
    assert (await flights.join("other", 60))[1] is LEADS
    tasks = await waiting(flights, 5)
    flights.publish(flight, b"answer")
    assert await outcomes(tasks) == [b"answer"] * 5
    assert (await flights.join("k", 60))[1] == b"answer"  # until the answer is stored
    flights.land(flight)
    assert (await flights.join("k", 60))[1] is LEADS


async def test_a_leader_without_an_answer_leaves_the_others_to_themselves():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 3)
    flights.land(flight)
    assert await outcomes(tasks) == [ALONE] * 3
    assert len(flights) == 0


async def test_one_call_follows_a_failed_leader_and_all_go_on_after_a_second_failure():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 4)
    flights.fail(flight, cancelled=False)
    assert (await tasks[0])[1] is LEADS
    assert not any(task.done() for task in tasks[1:])
    flights.fail(flight, cancelled=False)
    assert await outcomes(tasks[1:]) == [ALONE] * 3
    assert len(flights) == 0


async def test_any_number_of_cancelled_leaders_is_followed():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 5)
    for task in tasks:
        flights.fail(flight, cancelled=True)
        assert (await task)[1] is LEADS
    flights.fail(flight, cancelled=True)
    assert len(flights) == 0


async def test_a_cancelled_call_does_not_wait_any_more():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 2)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    flights.fail(flight, cancelled=True)
    assert (await tasks[1])[1] is LEADS


async def test_an_heir_that_is_cancelled_before_it_begins_passes_the_lead_on():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 3)
    flights.fail(flight, cancelled=False)
    tasks[0].cancel()  # in the same step of the event loop
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert (await tasks[1])[1] is LEADS
    flights.publish(flight, b"answer")
    flights.land(flight)
    assert (await tasks[2])[1] == b"answer"


async def test_a_call_waits_no_longer_than_its_patience():
    flights = Flights()
    await flights.join("k", 60)
    assert (await flights.join("k", 0.01))[1] is ALONE


async def test_a_leader_whose_caller_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    now = [0.0]
    flights = Flights(lambda: now[0], stalled_s=5)
    flight, _ = await flights.join("k", 60)
    tasks = await waiting(flights, 3)
    flights.pause(flight)
    now[0] = 4.0
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in tasks)
    now[0] = 6.0
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    (first,) = done
    new, outcome = first.result()
    assert outcome is LEADS
    assert new is not flight
    flights.publish(new, b"answer")
    flights.land(flight)  # the old one ends late, and takes nobody away
    assert [(await task)[1] for task in tasks if task is not first] == [b"answer"] * 2
    flights.resume(flight)


async def test_calls_in_other_event_loops_get_the_answer():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(asyncio.run(flights.join("k", 60))[1])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while len(flight.waiters) < 4:
        await asyncio.sleep(0.001)
    flights.publish(flight, b"answer")
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert found == [b"answer"] * 4


async def test_a_call_whose_event_loop_has_ended_is_passed_over():
    flights = Flights()
    flight, _ = await flights.join("k", 60)
    loop = asyncio.new_event_loop()

    def begin() -> None:
        task = loop.create_task(flights.join("k", 60))
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
        task._log_destroy_pending = False  # the program has left it
        loop.close()

    await asyncio.to_thread(begin)
    (task,) = await waiting(flights, 1)
    flights.fail(flight, cancelled=False)
    assert (await task)[1] is LEADS


async def test_a_forked_child_forgets_the_parents_calls():
    flights = Flights()
    await flights.join("k", 60)
    flights.reset_after_fork()
    assert (await flights.join("k", 60))[1] is LEADS
