"""Budgets of a client: refusals, counts and errors for calls, streams, strategies and concurrent calls."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from forked_program import ForkedProgram
from loopback_server import OpenAIServer, broken_stream, events, hang, reply, reset

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
#: The cost of ASK by the server's usage: 4 words of JSON and 9 words of answer.
COST = Decimal("0.000094")


def options(server: OpenAIServer, *budgets: Budget, **settings: Any) -> dict[str, Any]:
    mine = {"base_url": server.base_url, "api_key": "k", "models": ["m-large", "m-small"]}
    ledger = os.environ["SPECCLIENT_LEDGER"]
    values = {"ledger": ledger, "prices": PRICES, "providers": {"mine": mine}, **settings}
    return {"config": Settings.model_validate(values), "budgets": budgets, "max_retries": 0}


def standings(client: AsyncOpenAI | OpenAI) -> list[Any]:
    budgets = client.core.shared.budgets
    assert budgets is not None
    return budgets.standings()


def totals(client: AsyncOpenAI | OpenAI, place: int = 0) -> tuple[Decimal, Decimal, int]:
    """Return the dollars spent, the dollars reserved and the number of calls of one budget."""
    standing = standings(client)[place]
    return standing.spent / Decimal(10**9), standing.reserved / Decimal(10**9), standing.calls


def one_dollar_budget(**given: Any) -> Budget:
    return Budget(**{"name": "b", "usd": 1, **given})


def test_a_hard_budget_refuses_before_a_request_is_sent(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, Budget(name="b", usd="0.00065", period="month"))) as client:
        client.chat.completions.create(**ASK, max_tokens=50)
        with pytest.raises(BudgetExceededError) as caught:
            client.chat.completions.create(**ASK, max_tokens=60)
        client.chat.completions.create(**ASK, max_tokens=40)
        assert totals(client) == (2 * COST, 0, 2)
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


def test_without_max_tokens_the_reserved_limit_is_sent(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, one_dollar_budget(usd="0.01"))) as client:
        with pytest.raises(BudgetExceededError, match=r"no max_tokens, so 4,096 are reserved for each"):
            client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK, max_tokens=20)
        assert totals(client) == (COST, 0, 1)
    with OpenAI(**options(openai_server, one_dollar_budget(name="c"))) as client:
        client.chat.completions.create(**ASK)
        assert openai_server.requests[-1].json["max_tokens"] == 4096
        client.chat.completions.create(**ASK, extra_body={"max_completion_tokens": -1, "n_predict": -1})
        sent = openai_server.requests[-1].json
        assert (sent["max_tokens"], "max_completion_tokens" in sent, "n_predict" in sent) == (
            4096, False, False,
        )  # fmt: skip
    soft = one_dollar_budget(name="d", mode="soft")
    with OpenAI(**options(openai_server, soft)) as client:
        client.chat.completions.create(**ASK)
        assert "max_tokens" not in openai_server.requests[-1].json


async def test_complete_closed_and_failed_streams_count_their_actual_cost(
    openai_server: OpenAIServer,
) -> None:
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget())) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        assert totals(client)[1] > 0
        async for _ in stream:
            pass
        assert totals(client) == (COST, 0, 1)
        async with await client.chat.completions.create(**ASK, stream=True, max_tokens=500) as stream:
            await anext(stream)  # then closed
        spent = totals(client)
        assert (spent[1], spent[2]) == (0, 2)
        assert COST < spent[0] < COST + Decimal("0.0005")
        openai_server.script(
            broken_stream(b'data: {"id":"i","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n')
        )
        with pytest.raises(APIConnectionError):
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                pass
        assert totals(client)[0] > spent[0]
        assert totals(client)[1:] == (0, 3)


async def test_streaming_and_raw_responses_are_counted(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget())) as client:
        whole = client.chat.completions.with_streaming_response.create(**ASK)
        async with whole as response:
            await response.read()
        assert totals(client) == (COST, 0, 1)
        async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
            assert totals(client)[1] > 0  # then closed unread
        assert totals(client)[1:] == (0, 2)
        raw = await client.chat.completions.with_raw_response.create(**ASK)
        assert raw.status_code == 200
        assert totals(client)[1:] == (0, 3)


def test_streams_of_the_synchronous_client_are_counted(openai_server: OpenAIServer) -> None:
    with OpenAI(**options(openai_server, one_dollar_budget(session="run-7"))) as client:
        for session in ("run-7", "run-8"):
            stream = client.chat.completions.create(**ASK, stream=True, session=session)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert totals(client) == (COST, 0, 1)
        assert stream.meta.session == "run-8"


async def test_calls_that_cost_nothing_release_their_reservation(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget())) as client:
        openai_server.script(reply(400, {"error": {"message": "no"}}))
        with pytest.raises(BadRequestError):
            await client.chat.completions.create(**ASK)
        openai_server.close()
        with pytest.raises(APIConnectionError, match="No answer"):
            await client.chat.completions.create(**ASK)
        assert totals(client)[:2] == (0, 0)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        with pytest.raises(UnsupportedParameterError):  # raised before a request is sent
            await client.chat.completions.create(
                **{**ASK, "model": "anthropic/claude-sonnet-4-5"}, logit_bias={"1": 1}
            )
        assert totals(client)[2] == 3
        assert totals(client)[:2] == (0, 0)


async def test_timed_out_and_cancelled_calls_count_their_estimate(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(
        **options(openai_server, one_dollar_budget(), one_dollar_budget(name="soft", mode="soft"))
    ) as client:
        openai_server.script(hang, hang)
        with pytest.raises(APITimeoutError):
            await client.chat.completions.create(**ASK, max_tokens=100, timeout=0.2)
        timed_out, held, _ = totals(client)
        assert Decimal("0.001") < timed_out < Decimal("0.0011")
        assert held == 0
        call = asyncio.create_task(client.chat.completions.create(**ASK, max_tokens=100))
        while len(openai_server.requests) < 2:
            await asyncio.sleep(0.01)
        assert totals(client)[1] == timed_out
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        openai_server.script(reset)  # the first of two attempts, whose cost is unknown
        await client.with_options(max_retries=1).chat.completions.create(**ASK, max_tokens=100)
        for place in (0, 1):
            assert totals(client, place) == (3 * timed_out + COST, 0, 3)
            assert standings(client)[place].assumed == 3


async def test_retries_and_sub_calls_of_a_strategy_are_each_counted_once(openai_server: OpenAIServer) -> None:
    budgets = (one_dollar_budget(), one_dollar_budget(name="small", model="mine/m-small"))
    async with AsyncOpenAI(**options(openai_server, *budgets)) as client:
        openai_server.script(reply(429, {"error": {"message": "slow"}}, {"retry-after": "0"}))
        await client.with_options(max_retries=1).chat.completions.create(**ASK)
        assert totals(client) == (COST, 0, 1)
        answer = await client.chat.completions.create(
            **ASK, strategy=Strategy(kind="prediction", draft="mine/m-small"), drop_params=True
        )
        parts = answer.meta.parts or (answer.meta,)
        assert totals(client)[0] == COST + sum(part.cost.total or 0 for part in parts)
        assert totals(client)[1] == 0
        assert totals(client, 1)[0] == sum(p.cost.total or 0 for p in parts if p.route.model == "m-small")
        await client.models.list(provider="mine")  # not metered
        assert totals(client)[2] == 1 + len(parts)


async def test_concurrent_calls_never_exceed_a_hard_limit(openai_server: OpenAIServer) -> None:
    exact = await _estimate(openai_server)
    openai_server.script(*[_costing(exact)] * 200)
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget(usd=20 * exact + exact / 2))) as client:
        calls = [client.chat.completions.create(**ASK, max_tokens=9) for _ in range(200)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in done if isinstance(each, BudgetExceededError)]
        assert len(refused) == 180
        assert totals(client) == (20 * exact, 0, 20)
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


async def test_concurrent_processes_never_exceed_a_hard_limit(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
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
    started = [ForkedProgram(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    served = [int(process.communicate(timeout=120)[0]) for process in started]
    assert sum(served) == 20
    assert len(openai_server.requests) == 20
    with OpenAI(config=file) as client:
        assert totals(client) == (20 * exact, 0, 20)


HANGING = """
from specclient import OpenAI
ask = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100}
OpenAI(max_retries=0).chat.completions.create(**ask)
"""


async def test_the_reservation_of_a_killed_process_counts_as_spent_when_its_lease_ends(
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
        with ForkedProgram([sys.executable, "-c", HANGING], env=env) as process:
            while not openai_server.requests:
                await asyncio.sleep(0.01)
            process.kill()
        reserved = totals(client)[1]
        assert reserved > Decimal("0.001")
        with pytest.raises(BudgetExceededError):
            await client.chat.completions.create(**ASK, max_tokens=100)
        budgets = client.core.shared.budgets
        assert budgets is not None
        budgets.now = lambda: datetime.now(UTC) + timedelta(seconds=LEASE_S)
        with pytest.raises(BudgetExceededError):
            await client.chat.completions.create(**ASK, max_tokens=100)
        assert totals(client) == (reserved, 0, 1)


async def _estimate(server: OpenAIServer) -> Decimal:
    """Return the estimated cost of ASK with max_tokens=9."""
    async with AsyncOpenAI(**options(server, one_dollar_budget(name="probe", usd="1e-9"))) as client:
        with pytest.raises(BudgetExceededError) as caught:
            await client.chat.completions.create(**ASK, max_tokens=9)
    estimate: Decimal = caught.value.estimate
    return estimate


def _costing(dollars: Decimal) -> Any:
    """Respond after 50 ms with a usage that costs ``dollars``."""
    usage = {"prompt_tokens": int(dollars * 10**6) - 90, "completion_tokens": 9, "total_tokens": 9}
    body = {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}

    async def run(received: Any, wire: Any) -> None:
        await asyncio.sleep(0.05)
        await reply(200, body)(received, wire)

    return run


async def test_concurrent_images_do_not_exceed_a_budget(openai_server: OpenAIServer) -> None:
    usage = {"input_tokens": 10, "output_tokens": 6240, "total_tokens": 6250}
    openai_server.script(*[reply(200, {"created": 1, "data": [], "usage": usage})] * 30)
    prices = {"mine/img": {"input": 5, "output": 40}}
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget(), prices=prices)) as client:
        drawn = [client.images.generate(model="mine/img", prompt="a fox") for _ in range(30)]
        answers = await asyncio.gather(*drawn, return_exceptions=True)
        spent, reserved, calls = totals(client)
        assert {type(each).__name__ for each in answers} == {"ImagesResponse", "BudgetExceededError"}
        assert calls == len(openai_server.requests)
        assert (spent, reserved) == (calls * Decimal("0.24965"), 0)
        assert spent <= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_in_the_background_counts_as_its_bound(
    openai_server: OpenAIServer, stream: bool
) -> None:
    """The provider goes on after the call, so that its usage is not known."""
    queued = {"id": "r", "object": "response", "status": "queued", "output": [], "model": "m-large"}
    event = {"type": "response.queued", "sequence_number": 0, "response": queued}
    data = f"event: response.queued\ndata: {json.dumps(event)}\n\n".encode()
    openai_server.script(events(data) if stream else reply(200, queued))
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget())) as client:
        made = await client.responses.create(
            model="mine/m-large", input="x", max_output_tokens=1000, background=True, stream=stream
        )
        if stream:
            with suppress(APIConnectionError):
                async for _ in made:
                    pass
        spent, reserved, _ = totals(client)
        assert Decimal("0.01") <= spent < Decimal("0.0101")
        assert reserved == 0
        assert standings(client)[0].assumed == 1


async def test_a_budget_may_refuse_what_has_no_bound(openai_server: OpenAIServer) -> None:
    given: dict[str, Any] = {"model": "mine/m-large", "input": "x", "tools": [{"type": "web_search"}]}
    strict = one_dollar_budget(unpriced="refuse")
    async with AsyncOpenAI(**options(openai_server, strict)) as client:
        with pytest.raises(BudgetExceededError, match="runs the tool 'web_search' itself"):
            await client.responses.create(**given)
    assert openai_server.requests == []
    answer = {"id": "r", "object": "response", "status": "completed", "output": [], "model": "m-large"}
    openai_server.script(reply(200, {**answer, "usage": {"input_tokens": 1, "output_tokens": 1}}))
    async with AsyncOpenAI(**options(openai_server, one_dollar_budget(name="c"))) as client:
        await client.responses.create(**given)
        assert totals(client)[0] > 0
