"""Rows of failed attempts: an attempt that may have been billed has its own row, however the call ended."""

from __future__ import annotations

import asyncio
import socket
from decimal import Decimal

import pytest
from loopback_server import behave, hang, reply, reset

from specclient import APIError, AsyncOpenAI, Settings
from specclient.config import PriceSettings, ProviderSettings
from specclient.http_transport import retry
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow, encoded_rows
from specclient.types.wire import FailedAttempt

pytestmark = pytest.mark.anyio

BUSY = reply(429, {"error": {"message": "slow down"}}, {"retry-after-ms": "1"})
UNKNOWN = "unknown: no answer came"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Return a function that makes one call, and returns its rows and the exception or None."""
    monkeypatch.setattr(retry, "_FIRST_BACKOFF_S", 0.001)

    async def make(base_url, *, stream=False, transport="aiohttp", **options):
        settings = Settings(
            providers={"mine": ProviderSettings(base_url=base_url)},
            prices={"mine/m": PriceSettings(input=Decimal(2), output=Decimal(8))},
            ledger=str(tmp_path / "ledger.sqlite3"),
            transport=transport,
        )
        failure = None
        async with AsyncOpenAI(config=settings) as client:
            try:
                answer = await client.chat.completions.create(
                    model="mine/m",
                    messages=[{"role": "user", "content": "hi"}],
                    stream=stream,
                    tags={"a": "b"},
                    session="s",
                    metadata={"team": "red"},
                    **options,
                )
                if stream:
                    async for _ in answer:
                        pass
            except APIError as error:
                failure = error
            return sorted(client.ledger.rows(), key=lambda row: row.purpose), failure

    return make


def summary(rows):
    return [(row.purpose, row.status, row.error, row.attempts, row.price_source == UNKNOWN) for row in rows]


@pytest.mark.parametrize("transport", ["aiohttp", "httpx"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_attempt_without_a_response_has_its_own_row_and_a_refused_one_has_not(
    openai_server, call, stream, transport
):
    openai_server.script(reset, BUSY, behave)
    (whole, lost), failure = await call(openai_server.base_url, stream=stream, transport=transport)
    assert failure is None
    assert summary([whole, lost]) == [
        ("call", "ok", None, 3, False),
        ("retry", "error", "APIConnectionError", 0, True),
    ]
    assert whole.cost_nano
    assert lost.cost_nano is lost.prompt_tokens is lost.request_id is None
    assert lost.cost_estimated
    assert lost.parent == whole.id
    assert lost.id != whole.id
    for name in ("started_at", "operation", "provider", "model", "route", "streamed", "session"):
        assert getattr(lost, name) == getattr(whole, name)
    assert (lost.tags, lost.metadata, lost.session) == ({"a": "b"}, {"team": "red"}, "s")


async def test_a_failed_call_has_a_row_for_each_attempt_that_was_sent(openai_server, call):
    openai_server.script(reset, reset, reset)
    rows, failure = await call(openai_server.base_url)
    assert failure.sent
    assert summary(rows) == [
        ("call", "error", "APIConnectionError", 3, True),
        ("retry", "error", "APIConnectionError", 0, True),
        ("retry", "error", "APIConnectionError", 0, True),
    ]
    assert len({row.id for row in rows}) == 3


async def test_the_row_of_a_timed_out_attempt_has_its_duration(openai_server, call):
    openai_server.script(hang, behave)
    (whole, lost), _ = await call(openai_server.base_url, timeout=0.2)
    assert summary([whole, lost]) == [
        ("call", "ok", None, 2, False),
        ("retry", "error", "APITimeoutError", 0, True),
    ]
    assert 0.15 < lost.latency_s <= whole.latency_s


async def test_refused_attempts_have_no_rows_of_their_own(openai_server, call):
    openai_server.script(BUSY, BUSY, BUSY)
    (row,), failure = await call(openai_server.base_url)
    assert failure.status_code == 429
    assert (row.attempts, row.cost_nano, row.price_source) == (3, 0, "refused")


@pytest.mark.parametrize("transport", ["aiohttp", "httpx"])
async def test_a_request_that_never_reached_a_server_costs_nothing(call, transport):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (row,), failure = await call(f"http://127.0.0.1:{port}/v1", transport=transport)
    assert not failure.sent
    assert (row.attempts, row.error, row.cost_nano, row.price_source) == (
        3,
        "APIConnectionError",
        0,
        "not sent",
    )


async def test_a_call_cancelled_in_its_second_attempt_has_two_rows(openai_server, call, tmp_path):
    openai_server.script(reset, hang)
    ends = asyncio.create_task(call(openai_server.base_url))
    while len(openai_server.requests) < 2:
        await asyncio.sleep(0.01)
    ends.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends
    rows = sorted(Ledger(str(tmp_path / "ledger.sqlite3")).rows(), key=lambda row: row.purpose)
    assert summary(rows) == [
        ("call", "cancelled", None, 2, True),
        ("retry", "error", "APIConnectionError", 0, True),
    ]


async def test_a_call_ended_by_its_deadline_in_the_second_attempt_has_two_rows(openai_server, call):
    openai_server.script(reset, hang)
    rows, _ = await call(openai_server.base_url, deadline_s=0.5)
    assert summary(rows) == [
        ("call", "error", "DeadlineExceededError", 2, True),
        ("retry", "error", "APIConnectionError", 0, True),
    ]


def test_a_call_has_one_row_and_one_for_each_lost_attempt(make_call):
    assert len(encoded_rows(make_call())) == 1
    failed_attempts = (
        FailedAttempt("APITimeoutError", None, 0.5, sent=True),
        FailedAttempt("APIConnectionError", None, 0.1, sent=True),
    )
    rows = [
        LedgerRow.from_values(values)
        for values in encoded_rows(make_call("c", strategy="draft", lost_attempts=failed_attempts))
    ]
    assert [(row.id, row.error, row.latency_s) for row in rows[1:]] == [
        ("c-1", "APITimeoutError", 0.5),
        ("c-2", "APIConnectionError", 0.1),
    ]
    assert [row.strategy for row in rows] == ["draft"] * 3
