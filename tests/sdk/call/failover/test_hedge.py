"""Hedged calls: which request wins, cancellation of the loser, records, and the quota of hedges."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, Kit, answering, breaking, continuing, kit, status
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import hang

from specclient import APIStatusError, Policy
from specclient.call.failover.hedge import HedgeQuota, has_side_effects
from specclient.types.request import PerCallOptions, Request

pytestmark = pytest.mark.anyio

ALWAYS = Policy(hedge=1.0)
AUTO: dict[str, Any] = {"model": "auto", "messages": ASK, "policy": ALWAYS}


async def hedged_call(made: Kit, *, stream: bool, **more: Any) -> tuple[str, Any]:
    if not stream:
        answer = await made.client.chat.completions.create(**AUTO, **more)
        return answer.choices[0].message.content or "", answer.meta
    chunks = await made.client.chat.completions.create(**AUTO, **more, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]), chunks.meta


@pytest.mark.parametrize("stream", [False, True])
async def test_the_hedge_wins_if_the_first_request_is_slow(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.05
        made.servers[0].script(hang)
        made.servers[1].script(answering())
        text, meta = await hedged_call(made, stream=stream)
        assert await asyncio.to_thread(made.servers[0].wait_left, 1)  # the loser's connection is closed
        rows = await made.rows()
    assert text == ANSWER
    assert meta.route.chosen == "s1/m"
    assert "as a hedge for s0/m, which had not" in meta.route.reason
    parts = {(part.route.chosen, part.status, part.purpose) for part in meta.parts}
    assert parts == {("s0/m", "cancelled", "call"), ("s1/m", "ok", "hedge")}
    assert {row.parent for row in rows} == {meta.id}
    assert {row.purpose for row in rows} == {"call", "hedge"}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_first_request_wins_if_it_responds_before_the_hedge(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.05
        made.servers[0].script(answering(after_s=0.3))
        made.servers[1].script(hang)
        text, meta = await hedged_call(made, stream=stream)
        assert await asyncio.to_thread(made.servers[1].wait_left, 1)
    assert (text, meta.route.chosen) == (ANSWER, "s0/m")
    assert meta.route.reason == "the first of all"
    assert {(part.purpose, part.status) for part in meta.parts} == {("call", "ok"), ("hedge", "cancelled")}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fast_first_route_is_not_hedged(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 5.0
        made.servers[0].script(answering())
        text, meta = await hedged_call(made, stream=stream)
        assert made.request_counts() == [1, 0]
        assert [row.parent for row in await made.rows()] == [None]
    assert (text, meta.parts, meta.purpose) == (ANSWER, (), "call")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_hedge_leaves_the_first_request_running(tmp_path: Path, stream: bool) -> None:
    async with kit(tmp_path, 3) as made:
        made.patience_s = 0.05
        made.servers[0].script(answering(after_s=0.4), answering(after_s=0.1), hang)
        made.servers[1].script(status(500))
        text, meta = await hedged_call(made, stream=stream)
        assert (text, meta.route.chosen) == (ANSWER, "s0/m")
        assert {(part.purpose, part.status) for part in meta.parts} == {("call", "ok"), ("hedge", "error")}
        assert made.request_counts() == [1, 1, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_if_request_and_hedge_fail_the_call_fails_over_to_a_third_route(
    tmp_path: Path, stream: bool
) -> None:
    async def failing(received: Any, wire: Any) -> None:
        await asyncio.sleep(0.2)
        await status(500)(received, wire)

    async with kit(tmp_path, 3) as made:
        made.patience_s = 0.05
        made.servers[0].script(failing)
        made.servers[1].script(status(429))
        made.servers[2].script(answering())
        text, meta = await hedged_call(made, stream=stream)
    assert (text, meta.route.chosen) == (ANSWER, "s2/m")
    assert sorted(part.purpose for part in meta.parts) == ["call", "failover", "hedge"]
    assert "s0/m (InternalServerError 500), s1/m (RateLimitError 429)" in meta.route.reason


async def test_if_all_routes_fail_one_error_is_raised_with_a_note(tmp_path: Path) -> None:
    async def failing(received: Any, wire: Any) -> None:
        await asyncio.sleep(0.2)
        await status(500)(received, wire)

    async with kit(tmp_path) as made:
        made.patience_s = 0.05
        made.servers[0].script(failing)
        made.servers[1].script(status(429))
        with pytest.raises(APIStatusError) as raised:
            await hedged_call(made, stream=False)
        rows = await made.rows()
    assert raised.value.status_code == 500
    assert "s1/m (RateLimitError 429)" in raised.value.__notes__[0]
    assert sorted(row.purpose for row in rows) == ["call", "hedge"]


async def test_a_failure_before_the_hedge_delay_fails_over(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 5.0
        made.servers[0].script(status(429))
        made.servers[1].script(answering())
        text, meta = await hedged_call(made, stream=True)
    assert text == ANSWER
    assert [part.purpose for part in meta.parts] == ["call", "failover"]


async def test_a_disconnected_stream_of_a_winning_hedge_is_continued(tmp_path: Path) -> None:
    def able(_: int) -> dict[str, Any]:
        return {"prefill": "continue_final_message"}

    async with kit(tmp_path, 3, capabilities=able) as made:
        made.patience_s = 0.05
        made.servers[0].script(hang)
        made.servers[1].script(breaking("The quick brown fox"))
        made.servers[2].script(continuing())
        text, meta = await hedged_call(made, stream=True)
        assert await asyncio.to_thread(made.servers[0].wait_left, 1)
    assert text == ANSWER
    assert sorted(part.purpose for part in meta.parts) == ["call", "failover", "hedge"]


async def test_a_losing_request_of_the_local_engine_is_cancelled_and_charged(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, routes=["local/demo", "s0/m"]) as made:
        client = made.client
        await client.completions.create(model="local/demo", prompt="x", max_tokens=1)  # loads the model
        made.patience_s = 0.0
        made.servers[0].script(answering("done"))
        answer = await client.completions.create(
            model="auto", prompt="def f():", max_tokens=400, policy=ALWAYS
        )
        backend: Any = client.pipeline.destinations.get("local")
        engines = list(backend._engines.values())
        until = time.monotonic() + 20
        while any(engine.unfinished for engine in engines) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert not any(engine.unfinished for engine in engines)
    assert answer.meta.route.chosen == "s0/m"
    lost = next(part for part in answer.meta.parts if part.status == "cancelled")
    assert lost.engine_s is not None
    assert lost.cost.total is not None  # charged by engine seconds


async def test_cancelling_the_caller_cancels_both_requests(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.02
        for server in made.servers:
            server.script(hang, hang)
        before = asyncio.all_tasks()
        for stream in (False, True):
            calling = asyncio.create_task(hedged_call(made, stream=stream))
            while len(made.servers[1].requests) < 1 + stream:
                await asyncio.sleep(0.01)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        for server in made.servers:
            assert await asyncio.to_thread(server.wait_left, 2)
        rows = await made.rows()
        assert asyncio.all_tasks() <= before
    assert [row.status for row in rows] == ["cancelled"] * 4
    assert len({row.parent for row in rows}) == 2


async def test_a_slow_reader_of_a_hedged_stream_loses_nothing(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(200))
    async with kit(tmp_path) as made:
        made.patience_s = 5.0
        made.servers[0].script(answering(text))
        stream = await made.client.chat.completions.create(**AUTO, stream=True)
        received = ""
        async for chunk in stream:
            received += chunk.choices[0].delta.content or ""
            await asyncio.sleep(0)
    assert received == text
    assert stream.meta.status == "ok"


async def test_a_request_with_side_effects_is_not_hedged(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.02
        made.servers[0].script(answering(after_s=0.2))
        await hedged_call(made, stream=False, store=True)
        assert made.request_counts() == [1, 0]


async def test_a_policy_without_hedge_does_not_hedge(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.02
        made.servers[0].script(answering(after_s=0.2))
        await made.client.chat.completions.create(model="auto", messages=ASK, policy=Policy())
        assert made.request_counts() == [1, 0]


async def test_hedges_do_not_exceed_their_share_of_calls(tmp_path: Path) -> None:
    policy = Policy(hedge=0.25)
    async with kit(tmp_path) as made:
        made.patience_s = 0.0
        for server in made.servers:
            server.script(*[answering(after_s=0.02)] * 12)
        for _ in range(12):
            await made.client.chat.completions.create(model="auto", messages=ASK, policy=policy)
        assert made.request_counts() == [12, 3]


@given(share=st.floats(0.01, 1), wanted=st.lists(st.booleans(), max_size=200))
def test_no_window_of_calls_has_more_hedges_than_its_share_plus_three(
    share: float, wanted: list[bool]
) -> None:
    hedges, spent = HedgeQuota(), []
    for wants in wanted:
        hedges.earn(share)
        spent.append(wants and hedges.spend(share))
    assert sum(spent) <= share * len(spent) + 1e-6
    for length in (10, 50):
        for start in range(max(len(spent) - length, 0)):
            assert sum(spent[start : start + length]) <= share * length + 3 + 1e-6


def _request(operation: str, stream: bool = False, **params: Any) -> Request:
    from specclient.types.api_method import ApiMethod

    method = ApiMethod(name=operation, verb="POST", path="/x", operation=operation, metered=True)
    return Request(method, "auto", params, stream=stream, options=PerCallOptions())


def test_stored_and_background_requests_have_side_effects() -> None:
    assert not has_side_effects(_request("chat"))
    assert has_side_effects(_request("chat", store=True))
    assert has_side_effects(_request("response"))
    assert has_side_effects(_request("response", store=False, background=True))
    assert not has_side_effects(_request("response", store=False))
