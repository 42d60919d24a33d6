"""Callers of a deployment set out when its limits allow, in order; held together, they are let go apart."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from specclient.errors import APIConnectionError, ConfigurationError, status_error
from specclient.transport.pacing import Pacer, Turn
from specclient.types.limit import Limit

pytestmark = pytest.mark.anyio

PLAIN = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
}


class Patient:
    """A caller without a deadline, which notes what it was asked."""

    def __init__(self, most: float = float("inf")) -> None:
        self.asked: list[float] = []
        self.most = most

    def check_wait(self, seconds: float) -> None:
        self.asked.append(seconds)
        if seconds >= self.most:
            raise TimeoutError(seconds)


def pacer_of(time: Any, seed: int = 1, **limits: Limit) -> Pacer:
    return Pacer(
        clock=time.clock,
        now=time.now,
        sleep=time.sleep,
        random=random.Random(seed).random,
        limits={name.replace("_", "/"): limit for name, limit in limits.items()},
    )


def refusal(status: int = 429, headers: dict[str, str] | None = None, code: str | None = None):
    response = SimpleNamespace(status_code=status, headers=headers or {})
    return status_error(status, "refused", response=response, body={"code": code})


async def go(pacer: Pacer, time: Any, name: str = "p/m", tokens: int | None = None) -> tuple[float, Turn]:
    turn = await pacer.enter(name, tokens, Patient())
    return time.seconds, turn


async def starts(pacer: Pacer, time: Any, count: int, tokens: int | None = None) -> list[float]:
    """When each of ``count`` callers, who ask at once, sets out; none of them ends."""
    return [at for at, _ in await time.run(*[go(pacer, time, tokens=tokens) for _ in range(count)])]


async def seen(pacer: Pacer, time: Any, headers: dict[str, str], name: str = "p/m") -> None:
    """Send one request, whose answer has these headers."""
    _, turn = await go(pacer, time, name)
    pacer.served(name, turn, headers)
    turn.leave()


async def test_where_nothing_is_known_nobody_sleeps(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(pacer, time, {"x-ratelimit-remaining-requests": "0", "content-type": "application/json"})
    assert await starts(pacer, time, 200) == [0.0] * 200
    assert time.pauses == []


async def test_a_spent_limit_lets_one_out_as_each_comes_back_in_order(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(pacer, time, PLAIN)
    assert await starts(pacer, time, 5) == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert len(time.pauses) == 5  # each slept once
    assert (await go(pacer, time, "p/other"))[0] == time.seconds


async def test_what_is_left_goes_out_at_once(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(
        pacer, time, {**PLAIN, "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "57s"}
    )
    assert await starts(pacer, time, 5) == pytest.approx([0.0, 0.0, 0.0, 1.0, 2.0])


async def test_requests_sent_since_the_one_that_was_answered_are_counted(time: Any) -> None:
    pacer = pacer_of(time)
    _, first = await go(pacer, time)
    later = [await go(pacer, time) for _ in range(3)]
    pacer.served(
        "p/m",
        first,
        {**PLAIN, "x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "56s"},
    )
    assert await starts(pacer, time, 2) == pytest.approx([0.0, 1.0])
    assert len(later) == 3


async def test_an_answer_to_an_older_request_changes_nothing(time: Any) -> None:
    pacer = pacer_of(time)
    _, old = await go(pacer, time)
    time.seconds = 1.0
    await seen(
        pacer, time, {**PLAIN, "x-ratelimit-remaining-requests": "50", "x-ratelimit-reset-requests": "10s"}
    )
    pacer.served("p/m", old, PLAIN)
    assert await starts(pacer, time, 5) == [1.0] * 5


async def test_tokens_are_counted_by_their_estimate_and_by_the_mean_where_there_is_none(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(tokens_per_minute=600))
    assert await starts(pacer, time, 3, tokens=300) == pytest.approx([0.0, 0.0, 30.0])
    time.seconds = 60.0
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)  # all three: what was taken too much comes back, and the mean is 100
    assert await starts(pacer, time, 7) == pytest.approx([60.0] * 6 + [70.0])


async def test_a_call_larger_than_the_limit_waits_for_all_of_it_and_not_for_ever(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(tokens_per_minute=600))
    assert await starts(pacer, time, 2, tokens=100_000) == pytest.approx([0.0, 60.0 * 100_000 / 600])


async def test_a_window_comes_back_all_at_once(time: Any) -> None:
    headers = {
        "x-ratelimit-limit-requests-minute": "2",
        "x-ratelimit-remaining-requests-minute": "0",
        "x-ratelimit-reset-requests-minute": "12.5",
    }
    pacer = pacer_of(time)
    await seen(pacer, time, headers)
    assert await starts(pacer, time, 5) == pytest.approx([12.5, 12.5, 72.5, 72.5, 0.0])
    assert time.pauses[-1] <= 120  # the fifth would have had to wait longer: it goes out, and hears of it


async def test_a_limit_of_tomorrow_holds_nobody(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(
        pacer, time, {**PLAIN, "x-ratelimit-limit-requests": "100", "x-ratelimit-reset-requests": "23h59m"}
    )
    assert await starts(pacer, time, 3) == [0.0] * 3


async def test_a_share_of_the_tokens_that_is_spent_is_waited_for(time: Any) -> None:
    headers = {
        "anthropic-ratelimit-output-tokens-limit": "600",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2025-08-21T12:41:00Z",
    }
    pacer = pacer_of(time)
    await seen(pacer, time, headers)
    assert await starts(pacer, time, 1) == pytest.approx([0.1])


async def test_who_cannot_wait_so_long_is_told_at_once_and_takes_nothing(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(requests_per_minute=1))
    await go(pacer, time)
    hasty = Patient(most=30)
    with pytest.raises(TimeoutError):
        await pacer.enter("p/m", None, hasty)
    assert (hasty.asked, time.pauses) == ([60.0], [])
    assert await starts(pacer, time, 1) == pytest.approx([60.0])


async def test_who_gives_up_waiting_gives_its_share_back(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(tokens_per_minute=60))
    await go(pacer, time, tokens=60)
    waiting = asyncio.create_task(pacer.enter("p/m", 60, Patient()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    time.seconds = 60.0
    assert await starts(pacer, time, 1, tokens=60) == [60.0]


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_refusal_holds_every_caller_of_that_deployment_and_no_other(time: Any, status: int) -> None:
    pacer = pacer_of(time)
    under_way = [await go(pacer, time) for _ in range(40)]
    pacer.refused("p/m", under_way[0][1], refusal(status, {"retry-after": "4"}), {})
    assert (await go(pacer, time, "p/other"))[0] == 0.0
    began = await starts(pacer, time, 40)
    assert began == sorted(began)
    assert began[0] >= 4.0
    assert 4.5 < began[-1] < 5.5
    assert len({round(at, 3) for at in began}) > 30  # no stampede


async def test_one_caller_alone_is_held_for_exactly_as_long_as_was_asked(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await go(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    turn.leave()
    assert await starts(pacer, time, 1) == [4.0]


async def test_a_hold_moves_those_who_wait_and_nobody_overtakes(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(requests_per_minute=60))
    await starts(pacer, time, 60)
    order: list[str] = []

    async def enter(name: str) -> float:
        turn = await pacer.enter("p/m", None, Patient())
        order.append(name)
        return turn.sent

    async def refuse() -> None:
        _, turn = await go(pacer, time, "p/x")
        await time.sleep(0.5)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "10"}), {})

    async def latecomer() -> float:
        await time.sleep(0.6)
        return await enter("late")

    began = await time.run(enter("a"), enter("b"), refuse(), latecomer())
    assert order == ["a", "b", "late"]
    assert began[0] == pytest.approx(11.0)
    assert began[1] == pytest.approx(12.0)
    assert began[3] > began[1]


async def test_a_longer_hold_is_waited_out_and_a_shorter_one_changes_nothing(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await go(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "10"}), {})
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
    turn.leave()

    async def lengthen() -> None:
        await time.sleep(3.0)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "20"}), {})

    (began, _), _ = await time.run(go(pacer, time), lengthen())
    assert began == pytest.approx(23.0)


@pytest.mark.parametrize(
    "error",
    [
        refusal(500, {"retry-after": "4"}),
        refusal(429, {"retry-after": "3600"}),
        refusal(429, {"retry-after": "4"}, code="insufficient_quota"),
        APIConnectionError(),
    ],
)
async def test_failures_that_hold_nobody(time: Any, error) -> None:
    pacer = pacer_of(time)
    _, turn = await go(pacer, time)
    pacer.refused("p/m", turn, error, {})
    assert await starts(pacer, time, 50) == [0.0] * 50


async def test_a_refusal_without_a_delay_halves_what_runs_at_once(time: Any) -> None:
    pacer = pacer_of(time)
    turns = [(await go(pacer, time))[1] for _ in range(8)]
    for turn in turns:  # all eight are refused: one wave
        pacer.refused("p/m", turn, refusal(), {})
    for turn in turns:
        turn.leave()
    waiting = [asyncio.create_task(go(pacer, time)) for _ in range(8)]
    await asyncio.sleep(0.01)
    done = [task for task in waiting if task.done()]
    assert len(done) == 4
    assert done == waiting[:4]
    for task in done:
        _, turn = task.result()
        pacer.served("p/m", turn, {})
        turn.leave()
    await asyncio.sleep(0.01)
    assert [task.done() for task in waiting] == [True] * 8


async def test_no_more_than_the_user_allows_run_at_once(time: Any) -> None:
    pacer = pacer_of(time, p_m=Limit(concurrent=2))
    turns = [(await go(pacer, time))[1] for _ in range(2)]
    third = asyncio.create_task(go(pacer, time))
    await asyncio.sleep(0.01)
    assert not third.done()
    turns[0].leave()
    turns[0].leave()  # once is enough
    await third
    fourth = asyncio.create_task(go(pacer, time))
    await asyncio.sleep(0.01)
    assert not fourth.done()
    fourth.cancel()
    await asyncio.wait([fourth])


@pytest.mark.parametrize("value", [0, -1, float("nan"), "many", True])
@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_limits_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"limit {name} is {value!r}.*above 0"):
        Limit(**{name: value})
