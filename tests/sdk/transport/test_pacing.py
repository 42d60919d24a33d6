"""Callers of a deployment whose limit is spent wait together, and set out apart."""

from __future__ import annotations

import random
from types import SimpleNamespace

import anyio
import pytest

from specclient.errors import status_error
from specclient.transport.pacing import Pacer

pytestmark = pytest.mark.anyio

NOW = 1_755_780_000.0


class Time:
    """A clock that only sleeping moves; sleepers wake in the order of their times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        wake = self.seconds + seconds
        await anyio.lowlevel.checkpoint()
        self.seconds = max(self.seconds, wake)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pacer(time: Time) -> Pacer:
    return Pacer(
        clock=time.clock, now=lambda: NOW + time.seconds, sleep=time.sleep, random=random.Random(1).random
    )


def refusal(status: int = 429, retry_after: str = "4", code: str | None = None):
    response = SimpleNamespace(status_code=status, headers={"retry-after": retry_after})
    return status_error(status, "refused", response=response, body={"code": code})


async def test_without_a_hold_nobody_sleeps(pacer: Pacer, time: Time) -> None:
    pacer.learn("p/m", {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1s"})
    pacer.learn("p/m", {"x-ratelimit-remaining-requests": "0"})
    await pacer.wait("p/m")
    assert time.pauses == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_holds_every_caller_of_that_deployment_and_no_other(
    pacer: Pacer, time: Time, status: int
) -> None:
    pacer.refused("p/m", refusal(status))
    await pacer.wait("p/other")
    assert time.pauses == []
    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(pacer.wait, "p/m")
    first = time.pauses[:40]
    assert all(4.0 <= pause <= 5.0 for pause in first)
    assert len({round(pause, 2) for pause in first}) > 20  # no stampede


async def test_a_retry_that_slept_by_itself_is_spread_too(pacer: Pacer, time: Time) -> None:
    pacer.refused("p/m", refusal())
    time.seconds = 4.0
    await pacer.wait("p/m")
    assert len(time.pauses) == 1
    assert 0.0 < time.pauses[0] <= 1.0


async def test_a_hold_ends(pacer: Pacer, time: Time) -> None:
    pacer.refused("p/m", refusal())
    time.seconds = 5.0
    await pacer.wait("p/m")
    assert time.pauses == []


async def test_a_newer_longer_hold_is_waited_for_as_well(pacer: Pacer, time: Time) -> None:
    pacer.hold("p/m", 4.0)

    async def lengthen() -> None:
        pacer.hold("p/m", 20.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pacer.wait, "p/m")
        tasks.start_soon(lengthen)
    assert time.seconds >= 20.0


async def test_a_shorter_hold_does_not_cut_a_longer_one(pacer: Pacer, time: Time) -> None:
    pacer.hold("p/m", 10.0)
    pacer.hold("p/m", 1.0)
    await pacer.wait("p/m")
    assert time.pauses[0] >= 10.0


@pytest.mark.parametrize(
    "error", [refusal(500), refusal(429, "0"), refusal(429, "3600"), refusal(code="insufficient_quota")]
)
async def test_refusals_that_hold_nobody(pacer: Pacer, time: Time, error) -> None:
    pacer.refused("p/m", error)
    await pacer.wait("p/m")
    assert time.pauses == []


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s"},
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6000ms"},
        {"x-ratelimit-remaining-tokens-minute": "0", "x-ratelimit-reset-tokens-minute": "6.0"},
        {
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2025-08-21T12:40:06Z",
        },
    ],
)
async def test_a_limit_with_nothing_left_is_waited_for(
    pacer: Pacer, time: Time, headers: dict[str, str]
) -> None:
    pacer.learn("p/m", headers)
    await pacer.wait("p/m")
    assert 6.0 <= time.pauses[0] <= 7.5


async def test_a_limit_that_is_full_again_tomorrow_holds_nobody(pacer: Pacer, time: Time) -> None:
    pacer.learn("p/m", {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "23h59m"})
    await pacer.wait("p/m")
    assert time.pauses == []


async def test_requests_without_a_deployment_are_not_paced(pacer: Pacer, time: Time) -> None:
    pacer.refused("", refusal())
    await pacer.wait("")
    assert time.pauses == []
