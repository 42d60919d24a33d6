"""Callers of a deployment set out when its limits allow, in order; held together, they are let go apart."""

from __future__ import annotations

import asyncio
import random
import threading
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from specclient.errors import APIConnectionError, ConfigurationError, status_error
from specclient.transport.pacing.pacer import Pacer, PacingPermit
from specclient.types.limit import DeploymentLimit

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


def pacer_of(time: Any, seed: int = 1, **limits: DeploymentLimit) -> Pacer:
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


async def go(
    pacer: Pacer, time: Any, name: str = "p/m", tokens: int | None = None
) -> tuple[float, PacingPermit]:
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
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=600))
    assert await starts(pacer, time, 3, tokens=300) == pytest.approx([0.0, 0.0, 30.0])
    time.seconds = 60.0
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)  # all three: what was taken too much comes back, and the mean is 100
    assert await starts(pacer, time, 7) == pytest.approx([60.0] * 6 + [70.0])


async def test_a_call_larger_than_the_limit_waits_for_all_of_it_and_not_for_ever(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=600))
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
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=1))
    await go(pacer, time)
    hasty = Patient(most=30)
    with pytest.raises(TimeoutError):
        await pacer.enter("p/m", None, hasty)
    assert (hasty.asked, time.pauses) == ([60.0], [])
    assert await starts(pacer, time, 1) == pytest.approx([60.0])


async def test_who_gives_up_waiting_gives_its_share_back(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=60))
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
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
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
    assert began[0] == pytest.approx(10.5)
    assert began[0] < began[1] < began[3] <= 13.0


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
    pacer = pacer_of(time, p_m=DeploymentLimit(concurrent=2))
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
        DeploymentLimit(**{name: value})


async def test_a_crowd_that_is_refused_again_and_again_is_held_once_a_try(time: Any) -> None:
    """Two hundred callers of three tries each, whom the server asks for a second each time."""
    pacer = pacer_of(time)
    sent: list[float] = []

    async def call(number: int) -> float:
        for _ in range(3):
            turn = await pacer.enter("p/m", None, Patient())
            sent.append(time.seconds)
            await time.sleep(0.005 + number / 1000)  # the answers come in one after the other
            turn.leave()
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
            await time.sleep(1.0)
        return time.seconds

    ended = await time.run(*[call(number) for number in range(200)])
    assert len(sent) == 600
    assert max(ended) < 3 * (1.0 + 0.25 + 0.25)  # a second each, an answer's time, and the spread
    assert max(sent.count(at) for at in set(sent[200:])) <= 3  # no stampede


async def test_whom_a_hold_has_let_go_is_not_held_by_the_refusal_of_the_first_of_them(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await go(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    refused_at: list[float] = []

    async def first() -> None:
        _, turn = await go(pacer, time)
        refused_at.append(time.seconds)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})

    async def latecomer() -> float:
        await time.sleep(5.0001)
        return (await go(pacer, time))[0]

    _, *crowd, late = await time.run(first(), *[go(pacer, time) for _ in range(20)], latecomer())
    assert refused_at == [4.0]
    assert max(at for at, _ in crowd) <= 5.0
    assert 8.0 <= late <= 9.0


async def test_refusals_that_trickle_in_hold_for_twice_the_longest_pause_at_most(time: Any) -> None:
    pacer = pacer_of(time)
    turns = [(await go(pacer, time))[1] for _ in range(20)]

    async def trickle() -> None:
        for turn in turns:
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
            await time.sleep(0.5)

    async def ask() -> float:
        await time.sleep(0.1)
        return (await go(pacer, time))[0]

    _, began = await time.run(trickle(), ask())
    assert began == pytest.approx(2.0)


async def test_nobody_waits_longer_than_two_minutes_for_what_was_learned(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(pacer, time, {**PLAIN, "x-ratelimit-reset-requests": "3600s"})  # one a minute

    async def worsen() -> None:
        _, turn = await go(pacer, time, "p/x")
        for _ in range(40):
            await time.sleep(20.0)
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "90"}), {})

    (one, _), (two, _), _ = await time.run(go(pacer, time), go(pacer, time), worsen())
    assert 60.0 < one <= 120.0
    assert two <= 121.0


async def test_limits_the_user_has_set_are_waited_for_however_long_holds_or_not(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=1))
    began = await starts(pacer, time, 5)
    assert began == pytest.approx([0.0, 60.0, 120.0, 180.0, 240.0])


async def test_who_gives_up_waiting_leaves_no_hole(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
    await starts(pacer, time, 60)
    waiting = [asyncio.create_task(go(pacer, time)) for _ in range(601)]
    await asyncio.sleep(0)
    for task in waiting[:600]:
        task.cancel()
    last, newcomer = await time.run(waiting[600], go(pacer, time))
    assert (last[0], newcomer[0]) == pytest.approx((1.0, 2.0))


async def test_a_queue_whose_first_one_was_left_standing_with_its_loop_moves_on(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
    await starts(pacer, time, 60)
    loop = asyncio.new_event_loop()
    stuck = loop.create_task(pacer.enter("p/m", None, Patient()))
    await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0))
    assert (await time.run(go(pacer, time)))[0][0] == pytest.approx(1.0)
    stuck.cancel()
    await asyncio.to_thread(loop.run_until_complete, asyncio.wait([stuck]))
    loop.close()
    assert (await time.run(go(pacer, time)))[0][0] == pytest.approx(2.0)


async def test_callers_of_several_threads_leave_one_queue() -> None:
    pacer = Pacer(
        clock=monotonic,
        now=monotonic,
        sleep=asyncio.sleep,
        random=random.Random(1).random,
        limits={"p/m": DeploymentLimit(requests_per_minute=60_000)},
    )
    sent: list[float] = []

    async def call(tokens: int) -> None:
        turn = await pacer.enter("p/m", tokens, Patient())
        sent.append(turn.sent)
        turn.leave()

    async def crowd() -> None:
        calls = [asyncio.create_task(call(1)) for _ in range(200)]
        await asyncio.sleep(0)
        for task in calls[::5]:
            task.cancel()
        await asyncio.wait(calls)

    (await pacer.enter("p/m", 1, Patient())).leave()
    pacer._queues["p/m"].buckets["requests", "set"].take(60_000)
    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(sent) >= 640


async def test_lanes_of_names_nobody_uses_any_more_are_forgotten(time: Any) -> None:
    pacer = pacer_of(time, p_set=DeploymentLimit(requests_per_minute=2))
    _, running = await go(pacer, time, "p/running")
    _, done = await go(pacer, time, "p/set")
    done.leave()
    for number in range(20_000):
        (await pacer.enter(f"p/{number}", None, Patient())).leave()
        time.seconds += 1e-4
    assert len(pacer._queues) <= 4096
    assert {"p/running", "p/set", "p/19999"} <= pacer._queues.keys()
    assert "p/0" not in pacer._queues
    time.seconds += 60.0  # the limit that was set has come back: nothing of it is to be remembered
    for number in range(20_000, 24_000):
        (await pacer.enter(f"p/{number}", None, Patient())).leave()
    assert "p/running" in pacer._queues
    assert "p/set" not in pacer._queues
    running.leave()


async def test_who_leaves_the_queue_is_not_waited_for_in_tokens_either(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=60))
    await go(pacer, time, tokens=60)
    staying, leaving = (asyncio.create_task(go(pacer, time, tokens=60)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    hasty = Patient(most=100.0)
    with pytest.raises(TimeoutError):
        await pacer.enter("p/m", 60, hasty)
    assert hasty.asked == pytest.approx([120.0])
    await time.run(staying)


async def test_nobody_overtakes_those_who_are_just_about_to_go(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await go(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    order: list[str] = []

    async def enter(name: str) -> None:
        await pacer.enter("p/m", None, Patient())
        order.append(name)

    tasks = [asyncio.create_task(enter(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.seconds = 4.0  # a's sleep is over, and it has not noticed
    await time.run(*tasks, enter("late"))
    assert order == ["a", "b", "late"]


@pytest.mark.parametrize("a_minute", [7, 13, 77, 130, 999])
async def test_each_of_a_queue_sleeps_once_whatever_the_rounding(time: Any, a_minute: int) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=a_minute))
    time.seconds = 12345.678
    began = await starts(pacer, time, a_minute + 50)
    assert len(time.pauses) == 50
    assert began[-1] == pytest.approx(12345.678 + 50 * 60 / a_minute)


async def test_who_goes_in_spite_of_a_limit_takes_nothing_from_those_who_wait(time: Any) -> None:
    pacer = pacer_of(time)
    await seen(
        pacer, time, {**PLAIN, "x-ratelimit-limit-requests": "2", "x-ratelimit-reset-requests": "120s"}
    )
    began = await starts(pacer, time, 4)  # one a minute: the third and fourth would wait for longer than that
    assert began == pytest.approx([60.0, 120.0, 0.0, 0.0])
