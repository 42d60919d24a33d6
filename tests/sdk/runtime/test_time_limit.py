"""Limits of time, short ones with a timer of their own and long ones with a common one."""

from __future__ import annotations

import asyncio
import time

import pytest

from specclient.runtime import time_limit
from specclient.runtime.time_limit import TimeLimit

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["short", "long"])
def seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """A limit of 20 ms, watched by its own timer or by that of all long limits."""
    if request.param == "long":
        monkeypatch.setattr(time_limit, "_LONG_S", 0.0)
        monkeypatch.setattr(time_limit, "_LOOK_S", 0.01)
    return 0.02


async def test_a_block_that_takes_too_long_raises_a_timeout(seconds: float) -> None:
    limit = TimeLimit(seconds)
    begun = time.monotonic()
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(10)
    assert limit.expired
    assert 0.015 < time.monotonic() - begun < 5
    await asyncio.sleep(0.05)  # nothing of the cancellation is left


async def test_a_block_in_time_is_left_alone(seconds: float) -> None:
    limit = TimeLimit(seconds)
    with limit:
        await asyncio.sleep(0)
    await asyncio.sleep(3 * seconds)
    assert not limit.expired


async def test_no_limit_never_expires() -> None:
    limit = TimeLimit(None)
    with limit:
        await asyncio.sleep(0.01)
    assert not limit.expired


async def test_a_cancellation_from_elsewhere_is_raised_as_it_is(seconds: float) -> None:
    async def wait() -> None:
        with TimeLimit(60 * seconds):
            await asyncio.sleep(10)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_elsewhere_wins_over_the_limit(seconds: float) -> None:
    limit = TimeLimit(seconds)

    async def wait() -> None:
        with limit:
            try:
                await asyncio.sleep(10)
            finally:
                task.cancel()

    task = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limit.expired


async def test_the_outer_of_two_limits_passes_through_the_inner_one(seconds: float) -> None:
    outer, inner = TimeLimit(seconds), TimeLimit(60 * seconds)
    with pytest.raises(TimeoutError), outer, inner:
        await asyncio.sleep(10)
    assert (outer.expired, inner.expired) == (True, False)


async def test_an_exception_of_the_block_is_raised(seconds: float) -> None:
    with pytest.raises(KeyError), TimeLimit(seconds):
        raise KeyError


def test_each_event_loop_watches_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_LONG_S", 0.0)
    monkeypatch.setattr(time_limit, "_LOOK_S", 0.01)

    async def wait() -> None:
        with TimeLimit(0.02):
            await asyncio.sleep(10)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(wait())


async def test_the_common_timer_ends_with_the_last_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_LONG_S", 0.0)
    monkeypatch.setattr(time_limit, "_LOOK_S", 0.01)
    with TimeLimit(1.0):
        watch = time_limit._watch_of(asyncio.get_running_loop())
        assert watch._timer is not None
    await asyncio.sleep(0.05)
    assert watch._timer is None
