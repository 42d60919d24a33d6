"""The deadline of a call over all its attempts, and random failures that give one result and leak nothing."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, CONTINUES, Kit, answering, breaking, kit, status
from loopback_server import Behaviour, Received, Wire, hang, reset

from specclient import APITimeoutError, DeadlineExceededError, OpenAIError, Policy

pytestmark = pytest.mark.anyio

AUTO: dict[str, Any] = {"model": "auto", "messages": ASK}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("of", ["call", "policy"])
async def test_a_failover_gets_the_remaining_time_of_the_deadline(
    tmp_path: Path, stream: bool, of: str
) -> None:
    async def late(received: Received, wire: Wire) -> None:
        await asyncio.sleep(0.25)
        await status(500)(received, wire)

    async with kit(tmp_path) as made:
        made.servers[0].script(late)
        made.servers[1].script(hang)
        more: dict[str, Any] = {"deadline_s": 0.5} if of == "call" else {"policy": Policy(deadline_s=0.5)}
        begun = time.monotonic()
        with pytest.raises(OpenAIError) as raised:
            await made.client.chat.completions.create(**AUTO, **more, stream=stream)
        took = time.monotonic() - begun
        assert await asyncio.to_thread(made.servers[1].wait_left, 1)
        rows = await made.rows()
    assert took < 5
    assert "s1/m (DeadlineExceededError)" in raised.value.__notes__[0]
    assert rows[1].error == "DeadlineExceededError"
    assert rows[1].latency_s < 0.45  # not a new deadline of half a second


async def test_the_deadline_of_the_call_overrides_that_of_the_policy(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(answering(after_s=0.3))
        policy = Policy(deadline_s=0.1)
        answer = await made.client.chat.completions.create(**AUTO, policy=policy, deadline_s=5)
        assert answer.choices[0].message.content == ANSWER
        made.servers[0].script(hang)
        with pytest.raises(DeadlineExceededError, match=r"The deadline of 0\.1 s "):
            await made.client.chat.completions.create(**AUTO, policy=policy)
        assert made.request_counts() == [2, 0]  # no time is left for the other server


async def test_a_retry_delay_past_the_deadline_fails_over(tmp_path: Path) -> None:
    async with kit(tmp_path, max_retries=2) as made:

        async def later(received: Received, wire: Wire) -> None:
            body = b'{"error": {"message": "slow down"}}'
            headers = {"content-type": "application/json", "retry-after": "60"}
            await wire.head(429, {**headers, "content-length": str(len(body))})
            await wire.send(body)

        made.servers[0].script(later)
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(**AUTO, deadline_s=20)
        assert answer.meta.route.chosen == "s1/m"


async def test_the_local_engine_stops_at_the_deadline(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, routes=["local/demo"]) as made:
        create = made.client.completions.create
        await create(model="local/demo", prompt="x", max_tokens=1)  # loads the model
        ask: dict[str, Any] = {"model": "auto", "prompt": "class A:\n", "max_tokens": 900, "temperature": 1.5}
        with pytest.raises(DeadlineExceededError):
            await create(**ask, deadline_s=0.02)

        async def streamed() -> None:
            async for _ in await create(**ask, deadline_s=0.02, stream=True):
                pass

        with pytest.raises(DeadlineExceededError):
            await streamed()
        backend: Any = made.client.pipeline.destinations.get("local")
        until = time.monotonic() + 20
        while any(e.unfinished for e in backend._engines.values()) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert not any(engine.unfinished for engine in backend._engines.values())


async def test_a_hedge_gets_the_remaining_time_of_the_deadline(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.patience_s = 0.1
        for server in made.servers:
            server.script(hang)
        with pytest.raises(APITimeoutError):
            await made.client.chat.completions.create(**AUTO, policy=Policy(hedge=1.0), deadline_s=0.3)
        rows = await made.rows()
    assert {row.error for row in rows} == {"DeadlineExceededError"}
    assert {row.purpose for row in rows} == {"call", "hedge"}
    assert next(row for row in rows if row.purpose == "hedge").latency_s < 0.29


FAULTS = ("ok", "slow", "429", "500", "400", "reset", "hang", "break", "cut", "stall")


def _fault(name: str, rng: random.Random) -> Behaviour:
    """Return a behaviour that responds, fails or disconnects; an assistant message is continued."""

    async def run(received: Received, wire: Wire) -> None:
        body = received.json
        turn = body["messages"][-1]
        text = ANSWER.removeprefix(turn["content"]) if turn["role"] == "assistant" else ANSWER
        if name in ("break", "cut", "stall"):
            how = {"break": "reset", "cut": "close", "stall": "hang"}[name]
            pieces = text.split(" ")
            cut = " ".join(pieces[: rng.randint(1, len(pieces) - 1)]) if len(pieces) > 1 else text
            breaks = breaking(cut, how=how) if body.get("stream") else hang if how == "hang" else reset
            await breaks(received, wire)
        else:
            behaviours = {
                "ok": answering(text),
                "slow": answering(text, after_s=0.08),
                "429": status(429),
                "500": status(500),
                "400": status(400),
                "reset": reset,
                "hang": hang,
            }
            await behaviours[name](received, wire)

    return run


async def _call_once(made: Kit, rng: random.Random, number: int) -> None:
    """Make one call, streamed or not, perhaps closed early, and check its result."""
    stream, leaves = rng.random() < 0.6, rng.random() < 0.15
    share = rng.choice([0.0, 1.0])
    ask = {
        **AUTO,
        "policy": Policy(hedge=share),
        "timeout": 0.15,
        "deadline_s": rng.choice([None, 1.0]),
        "tags": {"n": str(number)},
    }
    try:
        answer = await made.client.chat.completions.create(**ask, stream=stream)
        if not stream:
            assert answer.choices[0].message.content == ANSWER
            assert answer.meta.status == "ok"
            return
        streamed_text, ids, failure = "", set(), None
        try:
            async for chunk in answer:
                ids.add(chunk.id)
                streamed_text += chunk.choices[0].delta.content or "" if chunk.choices else ""
                if leaves and streamed_text:
                    await answer.close()
                    assert answer.meta.status in ("cancelled", "ok")
                    return
        except OpenAIError as error:
            failure = error
        if failure is None:
            assert (streamed_text, len(ids), answer.meta.status) == (ANSWER, 1, "ok")
        else:
            assert getattr(failure, "partial", None) == streamed_text
            assert ANSWER.startswith(streamed_text)
            assert answer.meta.status == "error"
    except OpenAIError:
        return  # before the first token, so the caller has received nothing


@pytest.mark.parametrize("seed", range(4))
async def test_random_failures_give_one_answer_or_one_error(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    seen: list[Any] = []
    async with kit(tmp_path, 3, capabilities=lambda _: CONTINUES, timeout=1.0) as made:
        made.patience_s = 0.03
        for server in made.servers:
            server.script(*[_fault(rng.choice(FAULTS), rng) for _ in range(60)])
        note = made.client.core.shared.estimates.observe

        def observe(call: Any) -> None:
            seen.append(call)
            note(call)

        made.client.core.shared.estimates.observe = observe  # type: ignore[method-assign]
        before = asyncio.all_tasks()
        for number in range(10):
            await _call_once(made, rng, number)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        rows = await made.rows()
        sent = sum(made.request_counts())
        transport: Any = made.client.pipeline.transport
        assert not transport._running
    # Every request that reached a server has exactly one row.
    assert len({row.id for row in rows}) == len(rows)
    assert sorted(row.id for row in rows) == sorted(call.id for call in seen)
    assert sent <= len(rows)
    for row in rows:
        assert row.purpose in ("call", "failover", "hedge")
    for number in range(10):  # each call has one sub-call with purpose "call", and all have one parent
        own = [row for row in rows if row.tags["n"] == str(number)]
        assert [row.purpose for row in own].count("call") == 1
        assert len({row.parent for row in own}) == 1
        assert (own[0].parent is None) <= (len(own) == 1)
