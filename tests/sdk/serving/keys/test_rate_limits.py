"""Rate limits per minute, counted in this process or in a real Redis: usage never exceeds the limit."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis_server import RedisServer

from specclient.errors import ConfigurationError
from specclient.serving.keys.key import StoredKey
from specclient.serving.keys.rate_limits import (
    SPAN_S,
    LimitDecision,
    LimitUsage,
    LocalUsageMeter,
    UsageMeter,
    rate_limit_error,
    rate_limit_headers,
)
from specclient.serving.keys.redis_meter import RedisUsageMeter

pytestmark = pytest.mark.anyio
_numbers = count()


def limited_key(requests: int | None = None, tokens: int | None = None) -> StoredKey:
    return StoredKey(
        name="k",
        prefix="sk-sc-x",
        digest=f"{next(_numbers):064x}",
        created_at=datetime.now(UTC),
        requests_per_minute=requests,
        tokens_per_minute=tokens,
    )


async def test_no_window_of_sixty_seconds_exceeds_the_limit() -> None:
    rng, at = random.Random(7), 1000.0
    meter, key = LocalUsageMeter(lambda: at), limited_key(requests=10, tokens=500)
    taken: list[tuple[float, int]] = []
    for _ in range(3000):
        at += rng.expovariate(2.0)
        amount = rng.randrange(0, 200)
        decision = await meter.reserve(key, 1, amount)
        if decision.slot is not None:
            taken.append((at, amount))
            assert decision == replace(await meter.reserve(key, 0, 0), slot=decision.slot)
    assert len(taken) > 200
    for begin, _ in taken:
        window = [amount for moment, amount in taken if begin <= moment < begin + 60]
        assert len(window) <= 10
        assert sum(window) <= 500


async def test_a_request_succeeds_after_the_stated_wait() -> None:
    at = 100.5
    meter, key = LocalUsageMeter(lambda: at), limited_key(requests=2, tokens=100)
    first = await meter.reserve(key, 1, 60)
    assert first.requests == LimitUsage(2, 1, 100 + SPAN_S - at, 0.0)
    assert first.tokens is not None
    assert first.tokens.remaining == 40
    at = 130.0
    refused = await meter.reserve(key, 1, 50)
    assert refused.slot is None
    assert refused.tokens is not None
    assert refused.tokens.wait_s == 31.0
    problem = rate_limit_error(key, refused, 1, 50)
    assert (problem.status, problem.kind, problem.code) == (429, "tokens", "rate_limit_exceeded")
    assert problem.headers == {"retry-after": "31"}
    at = 160.9
    assert (await meter.reserve(key, 1, 50)).slot is None
    at = 161.0
    assert (await meter.reserve(key, 1, 50)).slot == 161


async def test_unused_reserved_tokens_are_returned() -> None:
    meter, key = LocalUsageMeter(lambda: 5.0), limited_key(tokens=100)
    slot = (await meter.reserve(key, 1, 100)).slot
    assert slot is not None
    assert (await meter.reserve(key, 1, 10)).slot is None
    await meter.adjust(key, slot, -70)
    assert (await meter.reserve(key, 1, 70)).slot is not None
    await meter.adjust(key, slot, 30)
    stands = await meter.reserve(key, 0, 0)
    assert stands.tokens is not None
    assert (stands.tokens.used, stands.tokens.remaining) == (130, 0)


async def test_a_request_over_the_whole_limit_is_refused_for_good() -> None:
    meter, key = LocalUsageMeter(lambda: 5.0), limited_key(requests=3, tokens=100)
    problem = rate_limit_error(key, await meter.reserve(key, 1, 101), 1, 101)
    assert problem.headers == {"x-should-retry": "false"}
    assert "never served" in problem.message
    assert (await meter.reserve(key, 0, 0)).requests == LimitUsage(3, 0, 0.0, 0.0), "nothing was reserved"


async def test_headers_match_openais() -> None:
    use = LimitUsage(60, 1, 360.0, 0.0)
    assert rate_limit_headers(LimitDecision(use, LimitUsage(100, 120, 0.74, 0.0), 1)) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "740ms",
    }
    assert (
        rate_limit_headers(LimitDecision(LimitUsage(1, 0, 0.0, 0.0), None, 1))["x-ratelimit-reset-requests"]
        == "0s"
    )


async def test_idle_keys_are_dropped_from_memory() -> None:
    at = 0.0
    meter = LocalUsageMeter(lambda: at)
    for _ in range(5000):
        await meter.reserve(limited_key(requests=5), 1, 0)
        at += 0.1
    assert len(meter._accounts) <= 4096


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


async def _check_clock_set_back(meter: UsageMeter, set_back: Callable[[], None], forward: Any) -> None:
    """Use up a key's limits, set the clock back an hour, and check that they are free in one minute."""
    key = limited_key(requests=3, tokens=300)
    first = await meter.reserve(key, 1, 200)
    assert first.slot is not None
    assert [(await meter.reserve(key, 1, 50)).slot is not None for _ in range(3)] == [True, True, False]
    set_back()
    refused = await meter.reserve(key, 1, 50)
    assert refused.slot is None, "the limit is not available anew"
    for use in (refused.requests, refused.tokens):
        assert use is not None
        assert use.remaining <= 50
        assert use.wait_s is not None
        assert 0 < use.wait_s <= SPAN_S
        assert use.full_s <= SPAN_S
    await meter.adjust(key, first.slot, -100)  # of a second that is in the future now
    forward(SPAN_S + 1)
    assert [(await meter.reserve(key, 1, 100)).slot is not None for _ in range(4)] == [True] * 3 + [False]


async def test_a_clock_set_back_neither_closes_nor_opens_the_limits() -> None:
    at = 10_000.5

    def forward(seconds: int) -> None:
        nonlocal at
        at += seconds

    await _check_clock_set_back(LocalUsageMeter(lambda: at), lambda: forward(-3600), forward)


async def test_a_clock_of_redis_set_back_neither_closes_nor_opens_the_limits(redis: RedisServer) -> None:
    """Redis does not start under libfaketime, so the counted seconds are moved instead of its clock."""
    from redis import Redis as Client

    at = 10_000.5  # of the worker's own counts, which do not depend on the clock
    meter = RedisUsageMeter(redis.url, LocalUsageMeter(lambda: at))
    with Client.from_url(redis.url.get_secret_value()) as client:

        def forward(seconds: int) -> None:
            nonlocal at
            at += max(seconds, 0)
            for name in client.keys("specclient:rate:*"):
                counts = client.hgetall(name)
                client.delete(name)
                moved = {int(second) - seconds: int(amount) for second, amount in counts.items()}
                client.hset(name, mapping=moved)

        await _check_clock_set_back(meter, lambda: forward(-3600), forward)
    await meter.close()


async def test_redis_counts_like_the_local_meter(redis: RedisServer) -> None:
    """The same sequence of requests goes to both meters; their usage must agree after each."""
    rng, local = random.Random(3), LocalUsageMeter(time.time)
    meter, key = RedisUsageMeter(redis.url), limited_key(requests=20, tokens=2000)
    for _ in range(60):
        asked = rng.randrange(0, 2), rng.randrange(0, 400)
        there, here = await meter.reserve(key, *asked), await local.reserve(key, *asked)
        assert (there.slot is None) == (here.slot is None)
        for mine, other in zip((there.requests, there.tokens), (here.requests, here.tokens), strict=True):
            assert mine is not None
            assert other is not None
            assert (mine.limit, mine.used, mine.remaining) == (other.limit, other.used, other.remaining)
            assert abs(mine.full_s - other.full_s) <= 1.5
            assert abs((mine.wait_s or 0) - (other.wait_s or 0)) <= 1.5
        if there.slot is not None and here.slot is not None and asked[1]:
            less = -rng.randrange(0, asked[1])
            await meter.adjust(key, there.slot, less)
            await local.adjust(key, here.slot, less)
    never = await meter.reserve(key, 1, 2001)
    assert never.tokens is not None
    assert never.tokens.wait_s is None
    await meter.close()


async def test_concurrent_workers_never_exceed_the_limit_in_redis(redis: RedisServer) -> None:
    meters, key = [RedisUsageMeter(redis.url, timeout_s=30) for _ in range(4)], limited_key(requests=25)
    answers = await asyncio.gather(*(meter.reserve(key, 1, 0) for _ in range(25) for meter in meters))
    assert sum(answer.slot is not None for answer in answers) == 25
    for meter in meters:
        await meter.close()


async def test_an_unreachable_redis_is_logged_once_and_local_counts_take_over(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    at = 0.0
    meter = RedisUsageMeter(redis.url, clock=lambda: at, timeout_s=0.5, retry_s=5.0)
    key = limited_key(requests=3)
    assert (await meter.reserve(key, 1, 0)).slot is not None
    redis.stop()
    with caplog.at_level(logging.WARNING, "specclient"):
        assert [(await meter.reserve(key, 1, 0)).slot is not None for _ in range(3)] == [True, True, False]
        at = 6.0
        assert (await meter.reserve(key, 1, 0)).slot is None, "the local count continues"
        assert len(caplog.records) == 1
        redis.start()
        at = 12.0
        assert (await meter.reserve(key, 1, 0)).slot is None, "Redis has lost its counts, the worker has not"
        other = RedisUsageMeter(redis.url)
        left = (await other.reserve(key, 0, 0)).requests
        assert left is not None
        assert left.remaining == 3, "the refused request is not counted"
        await other.close()
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "Redis does not answer",
        "Redis answers again; the workers share rate limits",
    ]
    assert "open-sesame" not in caplog.text
    await meter.close()


async def test_a_silent_redis_does_not_block_requests() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = SecretStr(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        meter = RedisUsageMeter(url, timeout_s=0.1)
        assert (await meter.reserve(limited_key(requests=1), 1, 0)).slot is not None
        await meter.close()


async def test_an_invalid_redis_url_is_an_error_without_the_password() -> None:
    with pytest.raises(ConfigurationError, match="redis://HOST") as caught:
        RedisUsageMeter(SecretStr("nonsense://:open-sesame@h"))
    assert "open-sesame" not in str(caught.value)


async def test_only_one_request_at_a_time_tries_a_redis_that_does_not_answer() -> None:
    at = 0.0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = SecretStr(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        meter, key = RedisUsageMeter(url, clock=lambda: at, timeout_s=0.5), limited_key(requests=100)
        assert (await meter.reserve(key, 1, 0)).slot is not None
        at = 6.0
        trying = [asyncio.ensure_future(meter.reserve(key, 1, 0)) for _ in range(20)]
        _, waiting = await asyncio.wait(trying, timeout=0.3)
        assert len(waiting) == 1
        await asyncio.gather(*trying)
        await meter.close()


async def test_tokens_reserved_while_redis_was_away_are_not_returned_to_it(redis: RedisServer) -> None:
    """Redis may have the use of other workers in the same second."""
    at = 0.0
    worker, other = RedisUsageMeter(redis.url, clock=lambda: at, timeout_s=0.5), RedisUsageMeter(redis.url)
    key = limited_key(tokens=1000)
    redis.stop()
    away = (await worker.reserve(key, 1, 400)).slot
    assert away is not None
    redis.start()
    at = 6.0
    there = await other.reserve(key, 1, 300)
    assert there.slot is not None
    await worker.adjust(key, type(away)(there.slot), -400)
    state = (await other.reserve(key, 0, 0)).tokens
    assert state is not None
    assert state.used == 300
    for meter in (worker, other):
        await meter.close()
