"""Batches run against a loopback server: records of both forms, order, budgets, failures and stopping."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from batch_server import BatchServer

import specclient
from specclient import AsyncOpenAI, BudgetExceededError, ConfigurationError
from specclient.batch import Record, run
from specclient.batch.line_index import LineIndex

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer() as server:
        yield server


@pytest.fixture
async def client(server: BatchServer, tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=server.configuration(tmp_path), max_retries=0) as client:
        yield client


async def collect(source: object, into: list[Record] | None = None, **options: object) -> list[Record]:
    found = [] if into is None else into
    async for record in run(source, **options):
        found.append(record)
    return found


def openai(custom_id: str, url: str = "/v1/chat/completions", **body: object) -> dict:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "mine/m", **body}}


def say(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


async def test_records_of_plain_lines(client: AsyncOpenAI, server: BatchServer) -> None:
    lines = [
        {"prompt": "one two"},
        {"id": "own", "messages": say("three"), "temperature": 0},
        {"prompt": "fail 400", "id": 9},
        {"prompt": "x", "tools": [{"type": "function", "function": {"name": "f"}}]},
    ]
    found = {record.id: record for record in await collect(lines, client=client, tags={"team": "a"})}
    assert found[1].data == {
        "id": 1,
        "output": "ONE TWO",
        "usage": {"prompt_tokens": 2, "completion_tokens": 2, "estimated": False},
        "cost": "0.004000",
        "error": None,
    }
    assert found[1].call.tags == {"team": "a"}
    assert (found["own"].data["output"], found["own"].cost) == ("THREE", Decimal("0.002"))
    assert found[9].data == {
        "id": 9,
        "output": None,
        "usage": None,
        "cost": None,
        "error": {
            "code": "BadRequestError",
            "message": "Error code: 400 - no fail 400",
            "status_code": 400,
        },
    }
    assert found[4].data["output"] == ""
    assert found[4].data["message"]["tool_calls"][0]["function"]["name"] == "f"
    sent = next(r.json for r in server.requests if r.json["messages"] == say("three"))
    assert sent == {"model": "m", "messages": say("three"), "temperature": 0}


async def test_records_of_openai_lines(client: AsyncOpenAI, server: BatchServer) -> None:
    lines = [
        openai("chat", messages=say("one")),
        openai("text", "/v1/completions", prompt="one"),
        openai("vector", "/v1/embeddings", input="one"),
        openai("response", "/v1/responses", input="one"),
        openai("status", messages=say("fail 404")),
        openai("nobody", model="nobody/m", messages=say("one")),
        openai("url", "/v1/images", prompt="one"),
    ]
    found = {record.id: record.data for record in await collect(lines, client=client)}
    for name in ("chat", "text", "vector", "response"):
        data = found[name]
        assert set(data) == {"id", "custom_id", "response", "error", "cost"}
        assert (data["custom_id"], data["error"]) == (name, None)
        assert data["id"].startswith("batch_req_")
        assert (data["response"]["status_code"], data["response"]["request_id"]) == (200, "req-1")
    assert found["chat"]["response"]["body"]["choices"][0]["message"]["content"] == "ONE"
    assert found["text"]["response"]["body"]["choices"][0]["text"] == "ONE"
    assert found["vector"]["response"]["body"]["data"][0]["embedding"] == [0.5, 1.0]
    assert found["response"]["response"]["body"]["output"][0]["content"][0]["text"] == "ONE"
    assert found["status"]["error"] is None
    assert found["status"]["response"]["status_code"] == 404
    assert found["status"]["response"]["body"]["error"]["message"] == "no fail 404"
    assert found["nobody"]["response"] is None
    assert found["nobody"]["error"]["code"] == "NotFoundError"
    assert found["url"]["error"]["code"] == "invalid_url"
    assert found["url"]["error"]["line"] == 7
    json.dumps(found)


async def test_the_body_of_a_record_is_the_servers_response_unchanged(
    client: AsyncOpenAI, server: BatchServer
) -> None:
    """No field is added or lost by parsing."""
    (record,) = await collect([openai("a", messages=say("one"))], client=client)
    sent = {
        "id": "x",
        "created": 1,
        "model": "m",
        "object": "chat.completion",
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ONE"}}
        ],
    }
    assert record.data["response"]["body"] == sent


@pytest.mark.parametrize("ordered", [True, False])
async def test_records_are_in_order_if_requested_and_concurrency_is_limited(
    client: AsyncOpenAI, server: BatchServer, ordered: bool
) -> None:
    server.gap = 0.01
    lines = [{"prompt": f"{'slow' if i == 0 else 'p'} {i}"} for i in range(20)]
    found = await collect(lines, client=client, concurrency=4, ordered=ordered)
    assert sorted(record.number for record in found) == list(range(1, 21))
    assert server.max_running == 4
    numbers = [record.number for record in found]
    assert (numbers == sorted(numbers)) is ordered
    if not ordered:
        assert numbers[-1] == 1, "the slow line does not delay the others"


async def test_duplicate_ids_are_errors_and_are_not_sent(client: AsyncOpenAI, server: BatchServer) -> None:
    lines = [openai("a", messages=say("one")), openai("a", messages=say("two")), {"prompt": "x", "id": "a"}]
    first, second, third = sorted(await collect(lines, client=client), key=lambda r: r.number)
    assert (first.ok, second.ok, third.ok) == (True, False, True)
    assert "'a' of line 1" in second.reason
    assert server.request_counts == {"one": 1, "x": 1}


async def test_paths_files_and_iterators_can_be_sources(client: AsyncOpenAI, tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"prompt": "one"}\n\n{"prompt": "two"}\r\n{"prompt": "three"}\n\n \n'
    file = tmp_path / "in.jsonl"
    file.write_bytes(text)

    async def later() -> AsyncIterator[bytes]:
        for piece in text.removeprefix(b"\xef\xbb\xbf").splitlines():
            await asyncio.sleep(0)
            yield piece

    expected = [(1, "ONE"), (2, None), (3, "TWO"), (4, "THREE")]
    for source in (file, str(file), io.BytesIO(text.removeprefix(b"\xef\xbb\xbf")), later()):
        found = await collect(source, client=client, ordered=True)
        assert [(record.number, record.data["output"]) for record in found] == expected
    with pytest.raises(ConfigurationError, match=r"cannot read .*nowhere"):
        await collect(tmp_path / "nowhere", client=client)


async def test_records_before_an_exception_of_the_source_are_yielded(client: AsyncOpenAI) -> None:
    def broken() -> Iterator[dict]:
        yield {"prompt": "slow"}
        raise OSError("the disk is gone")

    found: list[Record] = []
    with pytest.raises(OSError, match="disk"):
        await collect(broken(), into=found, client=client)
    assert [record.ok for record in found] == [True]


async def test_records_are_yielded_while_the_source_blocks(client: AsyncOpenAI) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as pipe, os.fdopen(reading, "rb") as source:
        pipe.write(b'{"prompt": "one"}\n')
        records = run(source, client=client)
        assert (await anext(records)).data["output"] == "ONE"
        pipe.write(b'{"prompt": "two"}\n')
        assert (await anext(records)).data["output"] == "TWO"
        pipe.close()
        assert [record async for record in records] == []


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_max_cost_is_not_exceeded(client: AsyncOpenAI, server: BatchServer, concurrency: int) -> None:
    lines = [{"prompt": f"p{i}" + " word" * 29, "max_tokens": 30} for i in range(50)]  # six cents each
    found: list[Record] = []
    with pytest.raises(BudgetExceededError, match=r"spent \$0.\d+ of \$0.5, and the next line may cost"):
        await collect(lines, into=found, client=client, max_cost="0.5", concurrency=concurrency)
    spent = sum(record.cost for record in found)
    assert all(record.ok for record in found)
    assert Decimal("0.40") < spent <= Decimal("0.5")
    assert len(found) == sum(server.request_counts.values())


async def test_max_cost_requires_known_prices_and_a_positive_number(
    client: AsyncOpenAI, server: BatchServer
) -> None:
    with pytest.raises(
        ConfigurationError, match=r'no price is known for mine/other.*\[prices."mine/other"\]'
    ):
        await collect([{"prompt": "x", "model": "mine/other"}], client=client, max_cost=1)
    assert not server.request_counts
    for wrong in (-1, "much", float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="max_cost is"):
            await collect([{"prompt": "x"}], client=client, max_cost=wrong)


async def test_a_budget_of_the_client_ends_the_batch(server: BatchServer) -> None:
    def key() -> str:
        if sum(server.request_counts.values()) >= 3:
            raise BudgetExceededError("nothing is left")
        return "k"

    found: list[Record] = []
    lines = [{"prompt": f"p{i}"} for i in range(50)]
    async with AsyncOpenAI(base_url=server.base_url, api_key=key) as client:
        with pytest.raises(BudgetExceededError, match="nothing is left"):
            await collect(lines, into=found, client=client, model="m", concurrency=1)
    assert [record.ok for record in found] == [True, True, True, False]


async def test_without_max_cost_prices_may_be_unknown(client: AsyncOpenAI) -> None:
    (record,) = await collect([{"prompt": "x", "model": "mine/other"}], client=client)
    assert (record.ok, record.cost, record.data["cost"]) == (True, None, None)


async def test_after_stop_the_running_lines_are_finished(client: AsyncOpenAI, server: BatchServer) -> None:
    stop, found = asyncio.Event(), []
    async for record in run(
        ({"prompt": f"slow {i}"} for i in range(100)), client=client, concurrency=5, stop=stop
    ):
        found.append(record)
        stop.set()
    assert 5 <= len(found) <= 10
    assert all(record.ok for record in found)
    assert len(found) == sum(server.request_counts.values())


async def test_after_stop_running_lines_are_cancelled_after_the_grace_period(
    client: AsyncOpenAI, server: BatchServer
) -> None:
    server.gap = 60
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    assert await collect([{"prompt": "x"}] * 3, client=client, stop=stop, grace_s=0.1) == []


async def test_closing_the_iterator_cancels_all_tasks(client: AsyncOpenAI, server: BatchServer) -> None:
    server.gap = 0.05
    before = asyncio.all_tasks()
    records = run(({"prompt": f"p{i}"} for i in range(1000)), client=client, concurrency=3)
    await anext(records)
    await records.aclose()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert sum(server.request_counts.values()) <= 8


async def test_a_run_closes_its_index_of_lines(client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[LineIndex] = []

    class Watched(LineIndex):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr("specclient.batch.runner.LineIndex", Watched)
    assert len(await collect([{"prompt": "x"}], client=client)) == 1
    assert len(closed) == 1


async def test_invalid_arguments_raise(client: AsyncOpenAI) -> None:
    with pytest.raises(ConfigurationError, match="concurrency is 0"):
        await collect([], client=client, concurrency=0)
    with pytest.raises(ConfigurationError, match="no policy named 'x'"):
        await collect([], client=client, policy="x")
    assert specclient.batch.run is run
