"""Budgets at the client: what they refuse, count and tell, for calls, streams, strategies and bursts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, broken_stream, hang, reply, reset

from specclient import (
    APIConnectionError,
    APITimeoutError,
    AsyncOpenAI,
    BadRequestError,
    Budget,
    BudgetExceededError,
    OpenAI,
    Strategy,
    UnsupportedParameterError,
)
from specclient.budgets.budgets import LEASE_S
from specclient.config import Settings

pytestmark = pytest.mark.anyio

PRICES = {"mine/m-large": {"input": 1, "output": 10}, "mine/m-small": {"input": 0.1, "output": 1}}
ASK: dict[str, Any] = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}]}
#: What ASK costs by the server's usage: 4 words of JSON, 9 words of answer.
COST = Decimal("0.000094")


def options(server: OpenAIServer, *budgets: Budget, **settings: Any) -> dict[str, Any]:
    mine = {"base_url": server.base_url, "api_key": "k", "models": ["m-large", "m-small"]}
    ledger = os.environ["SPECCLIENT_LEDGER"]
    values = {"ledger": ledger, "prices": PRICES, "providers": {"mine": mine}, **settings}
    return {"config": Settings.model_validate(values), "budgets": budgets, "max_retries": 0}


def standings(client: AsyncOpenAI | OpenAI) -> list[Any]:
    kept = client.core.shared.budgets
    assert kept is not None
    return kept.standings()


def told(client: AsyncOpenAI | OpenAI, place: int = 0) -> tuple[Decimal, Decimal, int]:
    """Return dollars spent and reserved, and calls, of one budget."""
    found = standings(client)[place]
    return found.spent / Decimal(10**9), found.reserved / Decimal(10**9), found.calls


def wide(**given: Any) -> Budget:
    return Budget(**{"name": "b", "usd": 1, **given})


def test_a_hard_budget_refuses_before_anything_is_sent(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, Budget(name="b", usd="0.00065", period="month"))) as client:
        client.chat.completions.create(**ASK, max_tokens=50)
        with pytest.raises(BudgetExceededError) as caught:
            client.chat.completions.create(**ASK, max_tokens=60)
        client.chat.completions.create(**ASK, max_tokens=40)
        assert told(client) == (2 * COST, 0, 2)
    assert len(openai_server.requests) == 2
    error = caught.value
    assert (error.budget, error.limit, error.spent, error.reserved) == ("b", Decimal("0.00065"), COST, 0)
    assert Decimal("0.0006") < error.estimate < Decimal("0.00065")
    now = datetime.now(UTC)
    assert error.resets_at == datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    assert [part for part in (
        "'b'", f"$0.00065 for {now:%Y-%m}", "spent $0.000094", "open calls $0.00;", "mine/m-large",
        f"may take ${error.estimate:f}", f"resets at {error.resets_at:%Y-%m-%d} 00:00 UTC", "set max_tokens",
        "raise its usd", 'mode = "soft"',
    ) if part not in str(error)] == []  # fmt: skip


def test_an_answer_that_nothing_bounds_is_taken_as_long_as_the_longest(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, wide(usd="0.01"))) as client:
        with pytest.raises(BudgetExceededError, match="no max_tokens, so an answer of 4,096 tokens"):
            client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK, max_tokens=20)
        client.chat.completions.create(**ASK)  # the longest now has nine
        assert told(client) == (2 * COST, 0, 2)


async def test_streams_count_what_they_came_to_however_they_end(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(**options(openai_server, wide())) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        assert told(client)[1] > 0
        async for _ in stream:
            pass
        assert told(client) == (COST, 0, 1)
        async with await client.chat.completions.create(**ASK, stream=True, max_tokens=500) as stream:
            await anext(stream)  # and left
        spent = told(client)
        assert (spent[1], spent[2]) == (0, 2)
        assert COST < spent[0] < COST + Decimal("0.0005")
        openai_server.script(
            broken_stream(b'data: {"id":"i","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n')
        )
        with pytest.raises(APIConnectionError):
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                pass
        assert told(client)[0] > spent[0]
        assert told(client)[1:] == (0, 3)


async def test_bodies_that_are_passed_on_as_they_come_count_too(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(**options(openai_server, wide())) as client:
        whole = client.chat.completions.with_streaming_response.create(**ASK)
        async with whole as response:
            await response.read()
        assert told(client) == (COST, 0, 1)
        async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
            assert told(client)[1] > 0  # and left
        assert told(client)[1:] == (0, 2)
        raw = await client.chat.completions.with_raw_response.create(**ASK)
        assert raw.status_code == 200
        assert told(client)[1:] == (0, 3)


def test_synchronous_streams_count_too(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, wide(session="run-7"))) as client:
        for session in ("run-7", "run-8"):
            stream = client.chat.completions.create(**ASK, stream=True, session=session)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert told(client) == (COST, 0, 1)
        assert stream.meta.session == "run-8"


async def test_calls_that_came_to_nothing_let_go_of_what_they_held(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncOpenAI(**options(openai_server, wide())) as client:
        openai_server.script(reply(400, {"error": {"message": "no"}}))
        with pytest.raises(BadRequestError):
            await client.chat.completions.create(**ASK)
        openai_server.close()
        with pytest.raises(APIConnectionError, match="No answer"):
            await client.chat.completions.create(**ASK)
        assert told(client)[:2] == (0, 0)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        with pytest.raises(UnsupportedParameterError):  # which nothing can be encoded for
            await client.chat.completions.create(
                **{**ASK, "model": "anthropic/claude-sonnet-4-5"}, logit_bias={"1": 1}
            )
        assert told(client)[2] == 3
        assert told(client)[:2] == (0, 0)


async def test_calls_that_were_given_up_count_as_estimated(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(**options(openai_server, wide(), wide(name="soft", mode="soft"))) as client:
        openai_server.script(hang, hang)
        with pytest.raises(APITimeoutError):
            await client.chat.completions.create(**ASK, max_tokens=100, timeout=0.2)
        timed_out, held, _ = told(client)
        assert Decimal("0.001") < timed_out < Decimal("0.0011")
        assert held == 0
        call = asyncio.create_task(client.chat.completions.create(**ASK, max_tokens=100))
        while len(openai_server.requests) < 2:
            await asyncio.sleep(0.01)
        assert told(client)[1] == timed_out
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        openai_server.script(reset)  # the first of two tries, which no one can tell the cost of
        await client.with_options(max_retries=1).chat.completions.create(**ASK, max_tokens=100)
        for place in (0, 1):
            assert told(client, place) == (3 * timed_out + COST, 0, 3)
            assert standings(client)[place].assumed == 3


async def test_retries_and_parts_of_a_strategy_are_each_counted_once(openai_server: OpenAIServer) -> None:
    budgets = (wide(), wide(name="small", model="mine/m-small"))
    async with AsyncOpenAI(**options(openai_server, *budgets)) as client:
        openai_server.script(reply(429, {"error": {"message": "slow"}}, {"retry-after": "0"}))
        await client.with_options(max_retries=1).chat.completions.create(**ASK)
        assert told(client) == (COST, 0, 1)
        played = await client.chat.completions.create(
            **ASK, strategy=Strategy(kind="prediction", draft="mine/m-small"), drop_params=True
        )
        parts = played.meta.parts or (played.meta,)
        assert told(client)[0] == COST + sum(part.cost.total or 0 for part in parts)
        assert told(client)[1] == 0
        assert told(client, 1)[0] == sum(p.cost.total or 0 for p in parts if p.route.model == "m-small")
        await client.models.list(provider="mine")  # no model works on it
        assert told(client)[2] == 1 + len(parts)


async def test_a_burst_passes_a_hard_limit_by_nothing(openai_server: OpenAIServer) -> None:
    exact = await _estimate(openai_server)
    openai_server.script(*[_costing(exact)] * 200)
    async with AsyncOpenAI(**options(openai_server, wide(usd=20 * exact + exact / 2))) as client:
        calls = [client.chat.completions.create(**ASK, max_tokens=9) for _ in range(200)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in done if isinstance(each, BudgetExceededError)]
        assert len(refused) == 180
        assert told(client) == (20 * exact, 0, 20)
    assert len(openai_server.requests) == 20


PROCESS = """
import asyncio, sys
from specclient import AsyncOpenAI, BudgetExceededError

async def main():
    async with AsyncOpenAI(max_retries=0) as client:
        ask = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
        calls = [client.chat.completions.create(**ask) for _ in range(50)]
        done = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in done if isinstance(each, BudgetExceededError)]
    assert all(each in refused or not isinstance(each, BaseException) for each in done), done
    print(len(done) - len(refused))

asyncio.run(main())
"""


async def test_processes_share_a_hard_limit(openai_server: OpenAIServer, tmp_path: Path) -> None:
    exact = await _estimate(openai_server)
    openai_server.script(*[_costing(exact)] * 200)
    file = tmp_path / "specclient.toml"
    file.write_text(
        f'[providers.mine]\nbase_url = "{openai_server.base_url}"\napi_key = "k"\n'
        '[prices."mine/m-large"]\ninput = 1\noutput = 10\n'
        f"[budgets.burst]\nusd = {20 * exact + exact / 2:f}\nperiod = 'day'\n"
    )
    env = {**os.environ, "SPECCLIENT_CONFIG": str(file)}
    command = [sys.executable, "-c", PROCESS]
    started = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    served = [int(process.communicate(timeout=120)[0]) for process in started]
    assert sum(served) == 20
    assert len(openai_server.requests) == 20
    with OpenAI(config=file) as client:
        assert told(client) == (20 * exact, 0, 20)


HANGING = """
from specclient import OpenAI
ask = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100}
OpenAI(max_retries=0).chat.completions.create(**ask)
"""


async def test_what_a_killed_process_held_is_let_go_of_when_its_lease_ends(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(
        f'[providers.mine]\nbase_url = "{openai_server.base_url}"\napi_key = "k"\n'
        '[prices."mine/m-large"]\ninput = 1\noutput = 10\n[budgets.b]\nusd = 0.0015\n'
    )
    openai_server.script(hang)
    env = {**os.environ, "SPECCLIENT_CONFIG": str(file)}
    async with AsyncOpenAI(config=file) as client:
        with subprocess.Popen([sys.executable, "-c", HANGING], env=env) as process:
            while not openai_server.requests:
                await asyncio.sleep(0.01)
            process.kill()
        assert told(client)[1] > Decimal("0.001")
        with pytest.raises(BudgetExceededError):
            await client.chat.completions.create(**ASK, max_tokens=100)
        kept = client.core.shared.budgets
        assert kept is not None
        kept._now = lambda: datetime.now(UTC) + timedelta(seconds=LEASE_S)
        await client.chat.completions.create(**ASK, max_tokens=100)
        assert told(client) == (COST, 0, 1)


async def _estimate(server: OpenAIServer) -> Decimal:
    """Return what ASK with max_tokens=9 is estimated at."""
    async with AsyncOpenAI(**options(server, wide(name="probe", usd="1e-9"))) as client:
        with pytest.raises(BudgetExceededError) as caught:
            await client.chat.completions.create(**ASK, max_tokens=9)
    estimate: Decimal = caught.value.estimate
    return estimate


def _costing(dollars: Decimal) -> Any:
    """Answer with the usage that costs so much, a moment later."""
    usage = {"prompt_tokens": int(dollars * 10**6) - 90, "completion_tokens": 9, "total_tokens": 9}
    body = {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}

    async def run(received: Any, wire: Any) -> None:
        await asyncio.sleep(0.05)
        await reply(200, body)(received, wire)

    return run
