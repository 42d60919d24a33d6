"""Calls of models with servers of their own: by the client, like calls of any other endpoint."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engine_program import LIFETIME_S
from managed_engines import engine_table, lives, starts_in, wait_until
from specclient_local.managed.listing import list_servers

from specclient import (
    AsyncOpenAI,
    ConfigurationError,
    DeadlineExceededError,
    EngineError,
    OpenAI,
    Policy,
    Settings,
    UnsupportedParameterError,
)
from specclient.ledger.ledger import Ledger
from specclient.routing.choose import option_catalogue
from specclient.types.backend import ServerAddress

pytestmark = pytest.mark.anyio
MESSAGES: Any = [{"role": "user", "content": "x"}]


def _settings(tables: dict[str, dict[str, Any]], **more: Any) -> Settings:
    return Settings.model_validate({"local": {"models": tables, "device_cost_per_hour": "36"}, **more})


def _client(*options: object, candidates: tuple[str, ...] = (), **table: Any) -> AsyncOpenAI:
    settings = _settings({"big": engine_table(*options, **table)}, candidates=candidates)
    return AsyncOpenAI(config=settings, max_retries=0)


def _rows() -> list[Any]:
    with closing(Ledger(None)) as ledger:
        return list(ledger.rows())


async def test_calls_and_streams_go_to_the_server_and_are_recorded(tmp_path: Path) -> None:
    async with _client("--starts", tmp_path / "starts") as client:
        answer = await client.chat.completions.create(model="local/big", messages=MESSAGES)
        assert answer.choices[0].message.content == "one two three"
        assert answer.meta.route.chosen == "local/big"
        assert answer.meta.cost.by_kind.keys() == {"engine"}
        assert float(answer.meta.cost.total) == pytest.approx(answer.meta.latency_s * 36 / 3600, abs=1e-8)
        stream = await client.chat.completions.create(model="local/big", messages=MESSAGES, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert (text, stream.meta.usage.completion) == ("one two three", 3)
        response = await client.responses.create(model="local/big", input="x")
        assert response.output_text == "one two three"
    assert len(starts_in(tmp_path / "starts")) == 1
    rows = _rows()
    assert [(row.provider, row.model, row.served_model, row.status) for row in rows] == [
        ("local", "local/big", "own", "ok")
    ] * 3
    assert {row.prompt_tokens for row in rows} == {4}


async def test_the_time_of_the_start_is_not_that_of_the_call(tmp_path: Path) -> None:
    async with _client("--delay", 1.5) as client:
        answer = await client.chat.completions.create(model="local/big", messages=MESSAGES)
    assert answer.meta.latency_s < 1.5


async def test_a_synchronous_client_uses_it_too() -> None:
    with OpenAI(config=_settings({"big": engine_table()})) as client:
        assert client.completions.create(model="local/big", prompt="x").choices[0].text == "one two three"


async def test_being_considered_starts_nothing(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with _client("--starts", starts, candidates=("local/big", "local/demo")) as client:
        policy = Policy(minimize="cost", deny=("local/big",))
        answer = await client.chat.completions.create(
            model="auto", messages=MESSAGES, max_tokens=2, policy=policy
        )
        assert answer.meta.route.chosen == "local/demo"
        place = client.pipeline.destinations.of_model("local", "big")
        assert option_catalogue.Endpoint is type(place)
        assert not starts.exists()
        assert list_servers() == []
        chosen = await client.chat.completions.create(
            model="auto", messages=MESSAGES, policy=Policy(minimize="cost", deny=("local/demo",))
        )
        assert chosen.meta.route.chosen == "local/big"
    assert len(starts_in(starts)) == 1


async def test_a_routed_call_goes_elsewhere_if_the_server_cannot_be_started() -> None:
    client = _client("--fail", "ValueError: no weights", candidates=("local/big", "local/demo"))
    async with client:
        policy = Policy(minimize="latency", fallbacks=("local/demo",))
        answer = await client.chat.completions.create(
            model="local/big", messages=MESSAGES, max_tokens=2, policy=policy
        )
        assert answer.meta.route.chosen == "local/demo"
        with pytest.raises(EngineError, match="no weights"):
            await client.chat.completions.create(model="local/big", messages=MESSAGES)
    failed = [row for row in _rows() if row.status == "error"]
    assert [(row.model, row.error) for row in failed] == [("local/big", "EngineError")] * 2
    assert {row.cost_nano for row in failed} == {0}, "nothing was sent"


async def test_a_call_to_a_server_that_died_starts_it_again(tmp_path: Path) -> None:
    async with _client("--starts", tmp_path / "starts") as client:
        for _ in range(2):
            answer = await client.chat.completions.create(model="local/big", messages=MESSAGES)
            assert answer.choices[0].message.content == "one two three"
            [*_, pid] = starts_in(tmp_path / "starts")
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not lives(pid), "it has ended")
    assert len(starts_in(tmp_path / "starts")) == 2


async def test_a_call_that_a_dying_server_resets_is_retried_at_the_next_one(tmp_path: Path) -> None:
    """The call itself kills the server, whose end nobody has noted when the request is sent again."""
    settings = _settings(
        {"big": engine_table("--starts", tmp_path / "starts", "--crash-once", tmp_path / "crash")}
    )
    async with AsyncOpenAI(config=settings, max_retries=2) as client:
        await client.chat.completions.create(model="local/big", messages=MESSAGES)
        answer = await client.chat.completions.create(model="local/big", messages=MESSAGES, stop="crash")
        assert answer.choices[0].message.content == "one two three"
        assert answer.meta.attempts == 2
        stream = await client.chat.completions.create(model="local/big", messages=MESSAGES, stream=True)
        assert (
            "".join([each.choices[0].delta.content async for each in stream if each.choices])
            == "one two three"
        )
    assert len(starts_in(tmp_path / "starts")) == 2


async def test_a_server_that_cannot_be_started_again_fails_the_call_with_its_log(tmp_path: Path) -> None:
    settings = _settings({"big": engine_table("--fail-later", tmp_path / "started")})
    async with AsyncOpenAI(config=settings, max_retries=2) as client:
        with pytest.raises(EngineError, match="RuntimeError: only at first"):
            await client.chat.completions.create(model="local/big", messages=MESSAGES, stop="crash")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_server_is_not_idle_while_calls_are_in_progress(tmp_path: Path, streams: bool) -> None:
    client = _client("--pause", 2, "--starts", tmp_path / "starts", keep_alive=0.3)
    async with client:
        made = await client.chat.completions.create(model="local/big", messages=MESSAGES, stream=streams)
        if streams:
            assert "three" in [chunk.choices[0].delta.content async for chunk in made if chunk.choices]
        [pid] = starts_in(tmp_path / "starts")
        wait_until(lambda: not lives(pid), "it is stopped, as the call has ended")


async def test_a_cancelled_call_and_a_closed_stream_release_the_server(tmp_path: Path) -> None:
    client = _client("--pause", 6, "--starts", tmp_path / "starts", keep_alive=0.3)
    async with client:
        call = asyncio.create_task(client.chat.completions.create(model="local/big", messages=MESSAGES))
        wait_until_async = asyncio.timeout(60)
        async with wait_until_async:
            while not [each for each in list_servers("big") if each.state.phase == "ready"]:
                await asyncio.sleep(0.05)
        stream = await client.chat.completions.create(model="local/big", messages=MESSAGES, stream=True)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await stream.close()
        [pid] = starts_in(tmp_path / "starts")
        wait_until(lambda: not lives(pid), "it is stopped")


async def test_refused_parameters_are_named_before_the_server_is_started(tmp_path: Path) -> None:
    table = {"path": "org/big", "draft": "org/small", "engine": "vllm", "python": "/nowhere/python"}
    async with AsyncOpenAI(config=_settings({"big": table}), max_retries=0) as client:
        for given in ({"logit_bias": {"5": 1}}, {"extra_body": {"min_p": 0.1}}):
            with pytest.raises(UnsupportedParameterError, match=r"vLLM rejects it while it speculates"):
                await client.chat.completions.create(model="local/big", messages=MESSAGES, **given)
        for given in ({"extra_body": {"min_p": 0}}, {"extra_body": {"min_p": 0.1}, "drop_params": True}):
            with pytest.raises(ConfigurationError, match="/nowhere/python"):
                await client.chat.completions.create(model="local/big", messages=MESSAGES, **given)
    assert list_servers() == []


async def test_the_deadline_of_a_call_covers_the_start() -> None:
    async with _client("--delay", LIFETIME_S) as client:
        with pytest.raises(
            DeadlineExceededError, match=r"deadline_s=0\.5 is over, and OpenAI-compatible is still"
        ):
            await client.chat.completions.create(model="local/big", messages=MESSAGES, deadline_s=0.5)
    [row] = _rows()
    assert (row.status, row.cost_nano) == ("error", 0)


async def test_a_server_without_telemetry_in_answers_has_its_counters_read(monkeypatch) -> None:
    async with _client() as client:
        place = client.pipeline.destinations.of_model("local", "big")
        server = client.pipeline.destinations.get("local").server("big")
        address = await server.acquire()
        server.release()
        monkeypatch.setattr(
            server,
            "_read",
            (server._read[0], server._read[1], ServerAddress(address.base_url, address.key, "own", True)),
        )
        started = await place.server.endpoint(place)
        place.server.release()
        assert (started.metrics, started.served_model, place.metrics) == (True, "own", False)
        answer = await client.chat.completions.create(model="local/big", messages=MESSAGES)
        assert answer.meta.speculation is None, "the counters have not moved"


async def test_two_clients_and_the_gateway_share_it(tmp_path: Path) -> None:
    from specclient.serving.warmup import preload

    options = ("--starts", tmp_path / "starts")
    async with _client(*options) as one, _client(*options) as other:
        await preload(one, ["local/big"])
        assert len(starts_in(tmp_path / "starts")) == 1
        await other.chat.completions.create(model="local/big", messages=MESSAGES)
    assert len(starts_in(tmp_path / "starts")) == 1
    [listed] = list_servers("big")
    assert listed.state.phase == "ready", "closed clients leave it to others"
