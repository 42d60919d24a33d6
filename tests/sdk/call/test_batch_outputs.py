"""Outputs of batches that a caller reads are booked, each line once; other files are left alone."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient import AsyncOpenAI, Budget, OpenAI, Provider, Settings
from specclient.call.batch_outputs import OutputReader
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow
from specclient.prices.prices import Prices
from specclient.providers.endpoint import Endpoint
from specclient.types.api_method import ApiMethod
from specclient.types.request import PerCallOptions, Request

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
HALF = Decimal("0.001125")


def output(count: int = 3, *, begin: int = 0) -> bytes:
    """Return an output of answers that cost $0.001125 each, the last of them an expired one."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    body = {
        "id": "c", "object": "chat.completion", "created": 1_795_176_000, "model": "gpt-5-2025-08-07",
        "choices": [choice], "usage": USAGE,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [
        {
            "id": f"batch_req_{n}",
            "custom_id": f"r{n}",
            "response": {"status_code": 200, "body": body},
            "error": None,
        }
        for n in range(begin, begin + count)
    ]
    expired = {"code": "batch_expired", "message": "too late"}
    lines[-1] |= {"response": None, "error": expired}
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def options(server: OpenAIServer, tmp_path: Path) -> dict[str, Any]:
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider="openai")
    settings = {"default_provider": "mine"}
    return {"providers": [mine], "ledger": str(tmp_path / "l.sqlite3"), "config": settings}


def client_of(options: dict[str, Any], kind: Any = OpenAI) -> Any:
    given = dict(options)
    return kind(**given | {"config": Settings.model_validate(given["config"])})


def rows(options: dict[str, Any]) -> list[LedgerRow]:
    ledger = Ledger(options["ledger"])
    try:
        return ledger.rows()
    finally:
        ledger.close()


def answer(content: bytes) -> Any:
    return reply(200, content, {"content-type": "application/octet-stream"})


def test_each_line_is_one_row_however_often_the_file_is_read(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    for _ in range(2):  # a client after the other, as after a restart
        server.script(answer(output()), answer(output()))
        with client_of(options) as client:
            assert client.files.content("file-out").read() == output()
            with client.files.with_streaming_response.content("file-out") as response:
                assert response.read() == output()
    found = rows(options)
    assert [(row.status, row.cost, row.tier, row.purpose) for row in found] == [
        ("ok", HALF, "batch", "batch"), ("ok", HALF, "batch", "batch"), ("error", 0, None, "batch"),
    ]  # fmt: skip
    assert {row.tags["batch"] for row in found} == {"file-out"}
    assert found[2].error == "batch_expired"


def test_lines_have_the_tag_of_their_job_if_the_client_has_seen_it(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    job = {
        "id": "batch_7", "object": "batch", "status": "completed", "output_file_id": "file-out",
        "endpoint": "/v1/chat/completions", "input_file_id": "file-in", "completion_window": "24h",
        "created_at": 1,
    }  # fmt: skip
    server.script(reply(200, job, {"content-type": "application/json"}), answer(output()))
    with client_of(options) as client:
        batch = client.batches.retrieve("batch_7")
        client.files.content(batch.output_file_id)
    assert {row.tags["batch"] for row in rows(options)} == {"batch_7"}


def test_an_output_that_is_cut_short_loses_and_doubles_no_line(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    whole = output(5)
    server.script(answer(whole[: len(whole) // 2]), answer(whole), answer(whole.rstrip(b"\n")))

    async def read(times: int) -> None:
        async with client_of(options, AsyncOpenAI) as client:
            for _ in range(times):
                await client.files.content("file-out")

    asyncio.run(read(1))
    assert len(rows(options)) == 2
    asyncio.run(read(2))
    assert sorted(row.cost or 0 for row in rows(options)) == [0, *[HALF] * 4]


def test_a_budget_is_charged_once_with_each_line_that_was_read(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    whole = output(5)
    cut = whole[: len(whole) // 2]
    options["budgets"] = [Budget(name="b", usd=1, tag="batch=*"), Budget(name="none", usd=1, tag="team=x")]
    server.script(*map(answer, (cut, whole, cut, whole)))
    for _ in range(4):
        with client_of(options) as client:
            client.files.content("file-out")
            found, other = client.core.shared.budgets.standings()
    assert (found.account.subject, found.spent, found.calls) == ("batch=file-out", 4_500_000, 5)
    assert other.spent == 0


def test_the_tags_of_a_request_that_reads_an_output_are_those_of_its_lines(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    server.script(answer(output(2)))
    method = ApiMethod(name="get", verb="GET", path="/files/file-out/content", response_type=bytes)
    request = Request(method, options=PerCallOptions(tags={"key": "ci"}, session="s"))

    async def read() -> None:
        async with client_of(options, AsyncOpenAI) as client:
            await client.core.pipeline.execute(request)

    asyncio.run(read())
    assert {(row.tags["key"], row.session) for row in rows(options)} == {("ci", "s")}


def test_other_files_and_broken_lines_book_nothing(server: OpenAIServer, options: dict[str, Any]) -> None:
    request = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}
    contents = [b"", b"\0" * 2**16, b"id,cost\n1,2\n", json.dumps(request).encode() + b"\n" + output()]
    server.script(*map(answer, contents), answer(output(2) + b"{broken\n\n[]\n" + output(2, begin=2)))
    with client_of(options) as client:
        for content in contents:
            assert client.files.content("file-x").read() == content
        assert not rows(options)
        client.files.content("file-y")
    assert len(rows(options)) == 4


def test_results_of_anthropic_are_booked_when_they_are_read_by_path(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }  # fmt: skip
    lines: list[Any] = [
        {"custom_id": "a", "result": {"type": "succeeded", "message": message}},
        {
            "custom_id": "b",
            "result": {"type": "errored", "error": {"type": "error", "error": {"type": "api_error"}}},
        },
    ]
    server.script(answer(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    options["providers"] = [
        Provider(
            name="mine", base_url=server.base_url, key="k", dialect="anthropic", price_provider="anthropic"
        )
    ]
    with client_of(options) as client:
        client.get("/messages/batches/msgbatch_1/results", cast_to=bytes)
    first, second = sorted(rows(options), key=lambda row: row.status, reverse=True)
    assert (first.cost, first.tags) == (Decimal("0.00225"), {"batch": "msgbatch_1"})
    assert (second.cost, second.error) == (0, "api_error")


def test_reports_show_no_latency_of_batches_and_routes_learn_nothing_of_them(
    server: OpenAIServer, options: dict[str, Any]
) -> None:
    server.script(answer(output(4)))
    with client_of(options) as client:
        client.files.content("file-out")
        total = client.costs.report("tier").total
        assert (total.calls, total.latency_p50_s, total.cost) == (4, None, 3 * HALF)
        (hours,) = client.core.shared.ledger.rollup()
        assert (hours.latency_p50_s, hours.latency_us) == (None, 0)
        assert not client.core.shared.estimates.load_history()


def test_a_line_that_is_too_long_is_skipped_and_not_kept() -> None:
    endpoint = Endpoint(name="mine", base_url="https://mine.example/v1", price_provider="openai")
    reader = OutputReader(endpoint, Prices(Settings()), scope="file-x", job="file-x")
    first, *rest = output(3).splitlines(keepends=True)
    found = reader.feed(first)
    tracemalloc.start()
    for number in range(700):  # 45 MB without a line break
        found += reader.feed(b"%08d" % number * 2**13)
    assert tracemalloc.get_traced_memory()[0] < 2**20
    tracemalloc.stop()
    found += reader.feed(b"}\n" + b"".join(rest)) + reader.end()
    assert len(found) == 3
    sound = OutputReader(endpoint, Prices(Settings()), scope="file-x", job="file-x")
    assert (sound.feed(b"ID3\0"), sound.is_wanted) == ([], False)
