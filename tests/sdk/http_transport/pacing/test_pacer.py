"""The pacer: requests start when the limits of a deployment allow, in order, and spread out after a hold."""

from __future__ import annotations

import asyncio
import random
import threading
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from specclient.errors import APIConnectionError, ConfigurationError, status_error
from specclient.http_transport.pacing.pacer import Pacer, PacingPermit
from specclient.types.limit import DeploymentLimit

pytestmark = pytest.mark.anyio

PLAIN = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
}


class WaitingCaller:
    """A caller that records the waits of the pacer, and refuses those of ``most`` seconds or more."""

    def __init__(self, most: float = float("inf")) -> None:
        self.waits: list[float] = []
        self.most = most

    def check_wait(self, seconds: float) -> None:
        self.waits.append(seconds)
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


async def start_one(
    pacer: Pacer, time: Any, name: str = "p/m", tokens: int | None = None
) -> tuple[float, PacingPermit]:
    turn = await pacer.enter(name, tokens, WaitingCaller())
    return time.seconds, turn


async def starts(pacer: Pacer, time: Any, count: int, tokens: int | None = None) -> list[float]:
    """Return the start times of ``count`` concurrent callers; no request ends."""
    return [at for at, _ in await time.run(*[start_one(pacer, time, tokens=tokens) for _ in range(count)])]


async def serve(pacer: Pacer, time: Any, headers: dict[str, str], name: str = "p/m") -> None:
    """Send one request, whose response has these headers."""
    _, turn = await start_one(pacer, time, name)
    pacer.served(name, turn, headers)
    turn.leave()


async def test_without_known_limits_no_caller_waits(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(pacer, time, {"x-ratelimit-remaining-requests": "0", "content-type": "application/json"})
    assert await starts(pacer, time, 200) == [0.0] * 200
    assert time.pauses == []


async def test_callers_of_a_spent_limit_start_in_order_as_requests_become_available(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(pacer, time, PLAIN)
    assert await starts(pacer, time, 5) == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert len(time.pauses) == 5  # each caller slept once
    assert (await start_one(pacer, time, "p/other"))[0] == time.seconds


async def test_the_remaining_requests_of_a_limit_start_at_once(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(
        pacer, time, {**PLAIN, "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "57s"}
    )
    assert await starts(pacer, time, 5) == pytest.approx([0.0, 0.0, 0.0, 1.0, 2.0])


async def test_requests_sent_after_the_answered_one_count_against_the_remaining(time: Any) -> None:
    pacer = pacer_of(time)
    _, first = await start_one(pacer, time)
    later = [await start_one(pacer, time) for _ in range(3)]
    pacer.served(
        "p/m",
        first,
        {**PLAIN, "x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "56s"},
    )
    assert await starts(pacer, time, 2) == pytest.approx([0.0, 1.0])
    assert len(later) == 3


async def test_headers_of_an_older_request_are_ignored(time: Any) -> None:
    pacer = pacer_of(time)
    _, old = await start_one(pacer, time)
    time.seconds = 1.0
    await serve(
        pacer, time, {**PLAIN, "x-ratelimit-remaining-requests": "50", "x-ratelimit-reset-requests": "10s"}
    )
    pacer.served("p/m", old, PLAIN)
    assert await starts(pacer, time, 5) == [1.0] * 5


async def test_tokens_are_counted_by_the_estimate_or_else_by_the_mean(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=600))
    assert await starts(pacer, time, 3, tokens=300) == pytest.approx([0.0, 0.0, 30.0])
    time.seconds = 60.0
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)
    pacer.used("p/m", 300, 100)  # all three: the excess of the estimates is returned, and the mean is 100
    assert await starts(pacer, time, 7) == pytest.approx([60.0] * 6 + [70.0])


async def test_a_call_larger_than_the_limit_waits_until_its_tokens_are_available(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=600))
    assert await starts(pacer, time, 2, tokens=100_000) == pytest.approx([0.0, 60.0 * 100_000 / 600])


async def test_a_fixed_window_refills_all_at_once(time: Any) -> None:
    headers = {
        "x-ratelimit-limit-requests-minute": "2",
        "x-ratelimit-remaining-requests-minute": "0",
        "x-ratelimit-reset-requests-minute": "12.5",
    }
    pacer = pacer_of(time)
    await serve(pacer, time, headers)
    assert await starts(pacer, time, 5) == pytest.approx([12.5, 12.5, 72.5, 72.5, 0.0])
    assert time.pauses[-1] <= 120  # the fifth would have to wait longer, so it is sent at once


async def test_a_limit_that_resets_in_a_day_delays_no_caller(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(
        pacer, time, {**PLAIN, "x-ratelimit-limit-requests": "100", "x-ratelimit-reset-requests": "23h59m"}
    )
    assert await starts(pacer, time, 3) == [0.0] * 3


async def test_a_spent_limit_of_output_tokens_is_waited_for(time: Any) -> None:
    headers = {
        "anthropic-ratelimit-output-tokens-limit": "600",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2025-08-21T12:41:00Z",
    }
    pacer = pacer_of(time)
    await serve(pacer, time, headers)
    assert await starts(pacer, time, 1) == pytest.approx([0.1])


async def test_a_caller_that_cannot_wait_raises_at_once_and_consumes_nothing(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=1))
    await start_one(pacer, time)
    hasty = WaitingCaller(most=30)
    with pytest.raises(TimeoutError):
        await pacer.enter("p/m", None, hasty)
    assert (hasty.waits, time.pauses) == ([60.0], [])
    assert await starts(pacer, time, 1) == pytest.approx([60.0])


async def test_a_cancelled_caller_returns_its_tokens(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=60))
    await start_one(pacer, time, tokens=60)
    waiting = asyncio.create_task(pacer.enter("p/m", 60, WaitingCaller()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    time.seconds = 60.0
    assert await starts(pacer, time, 1, tokens=60) == [60.0]


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_refusal_with_retry_after_holds_all_callers_of_its_deployment_only(
    time: Any, status: int
) -> None:
    pacer = pacer_of(time)
    under_way = [await start_one(pacer, time) for _ in range(40)]
    pacer.refused("p/m", under_way[0][1], refusal(status, {"retry-after": "4"}), {})
    assert (await start_one(pacer, time, "p/other"))[0] == 0.0
    began = await starts(pacer, time, 40)
    assert began == sorted(began)
    assert began[0] >= 4.0
    assert 4.5 < began[-1] < 5.5
    assert len({round(at, 3) for at in began}) > 30  # no stampede


async def test_a_single_caller_is_held_for_exactly_retry_after(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await start_one(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    turn.leave()
    assert await starts(pacer, time, 1) == [4.0]


async def test_a_hold_delays_waiting_callers_and_keeps_their_order(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
    await starts(pacer, time, 60)
    order: list[str] = []

    async def enter(name: str) -> float:
        turn = await pacer.enter("p/m", None, WaitingCaller())
        order.append(name)
        return turn.sent

    async def refuse() -> None:
        _, turn = await start_one(pacer, time, "p/x")
        await time.sleep(0.5)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "10"}), {})

    async def latecomer() -> float:
        await time.sleep(0.6)
        return await enter("late")

    began = await time.run(enter("a"), enter("b"), refuse(), latecomer())
    assert order == ["a", "b", "late"]
    assert began[0] == pytest.approx(10.5)
    assert began[0] < began[1] < began[3] <= 13.0


async def test_a_longer_hold_replaces_a_shorter_one_and_not_the_reverse(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await start_one(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "10"}), {})
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
    turn.leave()

    async def lengthen() -> None:
        await time.sleep(3.0)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "20"}), {})

    (began, _), _ = await time.run(start_one(pacer, time), lengthen())
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
async def test_failures_that_delay_no_caller(time: Any, error) -> None:
    pacer = pacer_of(time)
    _, turn = await start_one(pacer, time)
    pacer.refused("p/m", turn, error, {})
    assert await starts(pacer, time, 50) == [0.0] * 50


async def test_a_refusal_without_retry_after_halves_the_concurrency(time: Any) -> None:
    pacer = pacer_of(time)
    turns = [(await start_one(pacer, time))[1] for _ in range(8)]
    for turn in turns:  # all eight are refused together, which halves the limit once
        pacer.refused("p/m", turn, refusal(), {})
    for turn in turns:
        turn.leave()
    waiting = [asyncio.create_task(start_one(pacer, time)) for _ in range(8)]
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


async def test_the_users_concurrency_limit_is_kept(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(concurrent=2))
    turns = [(await start_one(pacer, time))[1] for _ in range(2)]
    third = asyncio.create_task(start_one(pacer, time))
    await asyncio.sleep(0.01)
    assert not third.done()
    turns[0].leave()
    turns[0].leave()  # leaving twice frees one slot only
    await third
    fourth = asyncio.create_task(start_one(pacer, time))
    await asyncio.sleep(0.01)
    assert not fourth.done()
    fourth.cancel()
    await asyncio.wait([fourth])


@pytest.mark.parametrize("value", [0, -1, float("nan"), "many", True])
@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_invalid_limits_raise(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"limit {name} is {value!r}.*above 0"):
        DeploymentLimit(**{name: value})


async def test_callers_refused_repeatedly_are_held_once_for_each_attempt(time: Any) -> None:
    """Two hundred callers make three attempts each, and every response has ``Retry-After: 1``."""
    pacer = pacer_of(time)
    sent: list[float] = []

    async def call(number: int) -> float:
        for _ in range(3):
            turn = await pacer.enter("p/m", None, WaitingCaller())
            sent.append(time.seconds)
            await time.sleep(0.005 + number / 1000)  # the responses arrive one after the other
            turn.leave()
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
            await time.sleep(1.0)
        return time.seconds

    ended = await time.run(*[call(number) for number in range(200)])
    assert len(sent) == 600
    assert max(ended) < 3 * (1.0 + 0.25 + 0.25)  # one second, the response time and the spread, per attempt
    assert max(sent.count(at) for at in set(sent[200:])) <= 3  # no stampede


async def test_callers_released_from_a_hold_are_not_held_again_by_the_refusal_of_the_first(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await start_one(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    refused_at: list[float] = []

    async def first() -> None:
        _, turn = await start_one(pacer, time)
        refused_at.append(time.seconds)
        pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})

    async def latecomer() -> float:
        await time.sleep(5.0001)
        return (await start_one(pacer, time))[0]

    _, *released, late = await time.run(first(), *[start_one(pacer, time) for _ in range(20)], latecomer())
    assert refused_at == [4.0]
    assert max(at for at, _ in released) <= 5.0
    assert 8.0 <= late <= 9.0


async def test_successive_refusals_hold_for_at_most_twice_the_longest_retry_after(time: Any) -> None:
    pacer = pacer_of(time)
    turns = [(await start_one(pacer, time))[1] for _ in range(20)]

    async def refuse_one_by_one() -> None:
        for turn in turns:
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "1"}), {})
            await time.sleep(0.5)

    async def enter_later() -> float:
        await time.sleep(0.1)
        return (await start_one(pacer, time))[0]

    _, began = await time.run(refuse_one_by_one(), enter_later())
    assert began == pytest.approx(2.0)


async def test_learned_limits_delay_a_caller_by_two_minutes_at_most(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(pacer, time, {**PLAIN, "x-ratelimit-reset-requests": "3600s"})  # one a minute

    async def worsen() -> None:
        _, turn = await start_one(pacer, time, "p/x")
        for _ in range(40):
            await time.sleep(20.0)
            pacer.refused("p/m", turn, refusal(headers={"retry-after": "90"}), {})

    (one, _), (two, _), _ = await time.run(start_one(pacer, time), start_one(pacer, time), worsen())
    assert 60.0 < one <= 120.0
    assert two <= 121.0


async def test_the_users_limits_are_waited_for_without_a_maximum(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=1))
    began = await starts(pacer, time, 5)
    assert began == pytest.approx([0.0, 60.0, 120.0, 180.0, 240.0])


async def test_callers_cancelled_in_the_queue_use_up_no_start_times(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
    await starts(pacer, time, 60)
    waiting = [asyncio.create_task(start_one(pacer, time)) for _ in range(601)]
    await asyncio.sleep(0)
    for task in waiting[:600]:
        task.cancel()
    last, newcomer = await time.run(waiting[600], start_one(pacer, time))
    assert (last[0], newcomer[0]) == pytest.approx((1.0, 2.0))


async def test_a_queue_continues_when_the_loop_of_its_first_caller_has_stopped(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=60))
    await starts(pacer, time, 60)
    loop = asyncio.new_event_loop()
    stuck = loop.create_task(pacer.enter("p/m", None, WaitingCaller()))
    await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0))
    assert (await time.run(start_one(pacer, time)))[0][0] == pytest.approx(1.0)
    stuck.cancel()
    await asyncio.to_thread(loop.run_until_complete, asyncio.wait([stuck]))
    loop.close()
    assert (await time.run(start_one(pacer, time)))[0][0] == pytest.approx(2.0)


async def test_callers_in_several_threads_share_one_queue() -> None:
    pacer = Pacer(
        clock=monotonic,
        now=monotonic,
        sleep=asyncio.sleep,
        random=random.Random(1).random,
        limits={"p/m": DeploymentLimit(requests_per_minute=60_000)},
    )
    sent: list[float] = []

    async def call(tokens: int) -> None:
        turn = await pacer.enter("p/m", tokens, WaitingCaller())
        sent.append(turn.sent)
        turn.leave()

    async def enter_200_times() -> None:
        calls = [asyncio.create_task(call(1)) for _ in range(200)]
        await asyncio.sleep(0)
        for task in calls[::5]:
            task.cancel()
        await asyncio.wait(calls)

    (await pacer.enter("p/m", 1, WaitingCaller())).leave()
    pacer._queues["p/m"].buckets["requests", "set"].take(60_000)
    threads = [threading.Thread(target=lambda: asyncio.run(enter_200_times())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(sent) >= 640


async def test_queues_of_unused_deployments_are_removed(time: Any) -> None:
    pacer = pacer_of(time, p_set=DeploymentLimit(requests_per_minute=2))
    _, running = await start_one(pacer, time, "p/running")
    _, done = await start_one(pacer, time, "p/set")
    done.leave()
    for number in range(20_000):
        (await pacer.enter(f"p/{number}", None, WaitingCaller())).leave()
        time.seconds += 1e-4
    assert len(pacer._queues) <= 4096
    assert {"p/running", "p/set", "p/19999"} <= pacer._queues.keys()
    assert "p/0" not in pacer._queues
    time.seconds += 60.0  # the user's limit is full again, so its queue has no state to keep
    for number in range(20_000, 24_000):
        (await pacer.enter(f"p/{number}", None, WaitingCaller())).leave()
    assert "p/running" in pacer._queues
    assert "p/set" not in pacer._queues
    running.leave()


async def test_tokens_of_a_cancelled_caller_are_not_waited_for(time: Any) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(tokens_per_minute=60))
    await start_one(pacer, time, tokens=60)
    staying, leaving = (asyncio.create_task(start_one(pacer, time, tokens=60)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    hasty = WaitingCaller(most=100.0)
    with pytest.raises(TimeoutError):
        await pacer.enter("p/m", 60, hasty)
    assert hasty.waits == pytest.approx([120.0])
    await time.run(staying)


async def test_a_new_caller_does_not_overtake_callers_about_to_start(time: Any) -> None:
    pacer = pacer_of(time)
    _, turn = await start_one(pacer, time)
    pacer.refused("p/m", turn, refusal(headers={"retry-after": "4"}), {})
    order: list[str] = []

    async def enter(name: str) -> None:
        await pacer.enter("p/m", None, WaitingCaller())
        order.append(name)

    tasks = [asyncio.create_task(enter(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.seconds = 4.0  # a's sleep is over, but a has not run yet
    await time.run(*tasks, enter("late"))
    assert order == ["a", "b", "late"]


@pytest.mark.parametrize("a_minute", [7, 13, 77, 130, 999])
async def test_each_queued_caller_sleeps_once_despite_rounding(time: Any, a_minute: int) -> None:
    pacer = pacer_of(time, p_m=DeploymentLimit(requests_per_minute=a_minute))
    time.seconds = 12345.678
    began = await starts(pacer, time, a_minute + 50)
    assert len(time.pauses) == 50
    assert began[-1] == pytest.approx(12345.678 + 50 * 60 / a_minute)


async def test_callers_sent_despite_a_limit_do_not_delay_waiting_callers(time: Any) -> None:
    pacer = pacer_of(time)
    await serve(
        pacer, time, {**PLAIN, "x-ratelimit-limit-requests": "2", "x-ratelimit-reset-requests": "120s"}
    )
    began = await starts(
        pacer, time, 4
    )  # one a minute: the third and fourth would wait more than two minutes
    assert began == pytest.approx([60.0, 120.0, 0.0, 0.0])
