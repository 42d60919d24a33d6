"""Readings that are repeated while calls are placed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial

import pytest

from specclient.routing.periodic_readings import PeriodicReadings


@pytest.mark.anyio
async def test_readings_are_repeated_and_failures_make_them_rarer() -> None:
    now, reads = 0.0, {"good": 0, "bad": 0}
    readings = PeriodicReadings("a page", 2.0, clock=lambda: now)

    async def good() -> None:
        reads["good"] += 1

    async def bad() -> None:
        reads["bad"] += 1
        raise OSError("down")

    readings.add("good", good)
    readings.add("bad", bad)
    for second in range(21):
        now = float(second)
        readings.call_placed()
        readings.call_placed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert reads == {"good": 11, "bad": 3}, "the failing one at 0, 4, 12, and not before 28"
    readings.discard("good")
    now = 100.0
    readings.call_placed()
    await readings.aclose()
    assert reads["good"] == 11


@pytest.mark.anyio
async def test_a_page_that_is_down_for_days_is_read_as_rarely_as_before() -> None:
    now = reads = 0

    async def bad() -> None:
        nonlocal reads
        reads += 1
        raise OSError("down")

    readings = PeriodicReadings("a page", 2.0, clock=lambda: float(now))
    readings.add("bad", bad)
    for hour in range(1100):  # each is a failure
        now = hour * 3600
        for _ in range(3):
            readings.call_placed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert reads == 1100


@pytest.mark.anyio
async def test_many_pages_are_not_read_at_once() -> None:
    now, seconds = 0.0, []

    async def read() -> None:
        seconds.append(int(now))

    readings = PeriodicReadings("pages", 10.0, clock=lambda: now)
    for number in range(100):
        readings.add(number, read, after_s=number / 10)
    for _ in range(40):
        readings.call_placed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now += 0.5
    assert {second: seconds.count(second) for second in range(1, 20)} == dict.fromkeys(range(1, 20), 10)


@pytest.mark.anyio
async def test_only_the_readings_that_a_call_needs_are_started() -> None:
    reads: list[str] = []
    readings = PeriodicReadings("pages", 10.0, clock=lambda: 0.0)

    async def read(name: str) -> None:
        reads.append(name)

    for name in ("a", "b"):
        readings.add(name, partial(read, name))
    readings.call_placed(["b"])
    await asyncio.sleep(0)
    assert reads == ["b"]


@pytest.mark.anyio
async def test_a_forked_child_does_not_wait_for_its_parents_reading() -> None:
    reads: list[int] = []
    readings = PeriodicReadings("a page", 10.0, clock=lambda: 0.0)

    async def read() -> None:
        reads.append(os.getpid())
        await asyncio.sleep(9)

    readings.add("page", read)
    readings.call_placed()
    await asyncio.sleep(0)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            asyncio.events._set_running_loop(None)

            async def call() -> None:
                readings.call_placed()
                await asyncio.sleep(0)

            asyncio.new_event_loop().run_until_complete(call())
        os._exit(0 if reads[-1] == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await readings.aclose()
