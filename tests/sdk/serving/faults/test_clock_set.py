"""The system's clock set back and forward by an hour under a server: budgets, limits and sums hold."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gateway_server import wait_until
from loopback_server import Behaviour, OpenAIServer, Received, Wire, reply
from served_process import BODY, ServedProcess
from set_clock import SetClock

HOUR = 3600
CALL_NANO = 80_000
LEDGER = "ledger.sqlite3"
DAYS = "SELECT substr(started_at, 1, 10), SUM(cost_nano) FROM calls WHERE tags LIKE '%daily%' GROUP BY 1"


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    """A clock that shows 00:20 UTC, so that an hour before is another day."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return SetClock(tmp_path, (midnight + timedelta(minutes=20)).timestamp())


@pytest.fixture
def server(tmp_path: Path, openai_server: OpenAIServer, clock: SetClock) -> Iterator[ServedProcess]:
    ledger, file = str(tmp_path / LEDGER), str(tmp_path / "specclient.toml")
    places = {"SPECCLIENT_LEDGER": ledger, "SPECCLIENT_CONFIG": file}
    server = ServedProcess(tmp_path, openai_server, **clock.environment, **places)
    yield server
    server.end()


def _query(folder: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(folder / LEDGER, timeout=10)) as database:
        return database.execute(sql).fetchall()


def _key(server: ServedProcess, name: str, *options: str) -> str:
    return server.command("serve", "keys", "create", name, *options)


def _until_refused(server: ServedProcess, key: str) -> int:
    """Ask until a budget or limit refuses; return the number of answers."""
    for answered in range(50):
        answer = server.ask(key)
        if answer.status_code == 429:
            return answered
        assert answer.status_code == 200, answer.text
    pytest.fail("50 calls were not refused")


def _assert_sums(server: ServedProcess, answers: int) -> None:
    """Check the rows: one for each answer, positive durations, and sums and reports that add up."""
    folder = server.folder
    assert wait_until(lambda: (folder / LEDGER).exists())
    time.sleep(1)  # for the rows that wait in memory
    assert _query(folder, "SELECT COUNT(*) FROM calls") == [(answers,)]
    (rows,) = _query(folder, "SELECT COUNT(*), SUM(cost_nano), MIN(latency_s), MAX(latency_s) FROM calls")
    assert rows[2] > 0
    assert rows[3] < 60
    assert _query(folder, "SELECT SUM(calls), SUM(cost_nano) FROM calls_by_hour") == [rows[:2]]
    by_hour = "SELECT substr(started_at, 1, 10) || substr(started_at, 12, 2), COUNT(*) FROM calls GROUP BY 1"
    summed = "SELECT substr(hour, 1, 10) || substr(hour, 12, 2), SUM(calls) FROM calls_by_hour GROUP BY 1"
    assert _query(folder, by_hour) == _query(folder, summed)
    report = json.loads(server.command("cost", "report", "--by", "day", "--json"))
    assert report["total"]["calls"] == rows[0]
    assert Decimal(str(report["total"]["cost"])) == Decimal(rows[1]) / 10**9


def test_budgets_and_limits_hold_while_the_clock_is_set(
    server: ServedProcess, openai_server: OpenAIServer, clock: SetClock
) -> None:
    total = _key(server, "total", "--budget", "0.00048")
    daily = _key(server, "daily", "--budget", "0.00048/day")
    limited = _key(server, "limited", "--requests-per-minute", "3")
    assert wait_until(lambda: server.ask(limited).status_code == 200)
    answers = 1 + _until_refused(server, limited)
    assert answers == 3
    first = {key: _until_refused(server, key) for key in (total, daily)}
    assert set(first.values()) == {4}
    answers += 8
    clock.forward(-HOUR)  # to the day before
    refused = server.ask(limited)
    assert refused.status_code == 429
    assert 0 < float(refused.headers["retry-after"]) <= 61
    assert server.ask(total).status_code == 429
    assert _until_refused(server, daily) == 4, "the day before has a budget of its own"
    answers += 4
    for hours in (1, 1, -1, -1, 1):
        clock.forward(hours * HOUR)
        assert [server.ask(key).status_code for key in (total, daily)] == [429, 429]
    _assert_sums(server, answers)
    spent = _query(server.folder, DAYS)
    assert len(spent) == 2
    assert {nano for _, nano in spent} == {4 * CALL_NANO}
    reserved = "SELECT COUNT(*) FROM budget_holds"
    assert _query(server.folder, reserved) == [(0,)]


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_open_stream_keeps_its_reservation_while_the_clock_is_set(
    server: ServedProcess, openai_server: OpenAIServer, clock: SetClock, hours: int
) -> None:
    key = _key(server, "one", "--budget", "0.00024")  # for one call at a time
    other = _key(server, "other")
    assert wait_until(lambda: server.ask(other).status_code == 200)
    checked = threading.Event()
    openai_server.script(_stream_until(checked))
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(server.ask, key, {**BODY, "stream": True})
        try:
            assert wait_until(lambda: len(openai_server.requests) == 2)
            for step in (hours, -hours):
                clock.forward(step * HOUR)
                refused = server.ask(key)
                assert refused.status_code == 429
                assert refused.json()["error"]["code"] == "insufficient_quota"
        finally:
            checked.set()
        text = stream.result().text
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"content": "a"') >= 2
    _assert_sums(server, 2)
    assert _query(server.folder, "SELECT nano, calls, assumed FROM budget_spend") == [(26_000 + 80_000, 1, 0)]


def _stream_until(ended: threading.Event) -> Behaviour:
    """Send a word every 50 ms until the event is set, and the usage."""
    frame: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    word = {**frame, "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    usage = {"prompt_tokens": 13, "completion_tokens": 10, "total_tokens": 23}

    async def run(_: Received, wire: Wire) -> None:
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        while not ended.is_set():
            await wire.chunk(_event(word))
            await asyncio.sleep(0.05)
        await wire.chunk(
            _event(word) + _event({**frame, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
        )
        await wire.chunk(b"")

    return run


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _after(clock: SetClock, seconds: int, behaviour: Behaviour) -> Behaviour:
    async def run(received: Received, wire: Wire) -> None:
        clock.forward(seconds)
        await behaviour(received, wire)

    return run


def test_retries_wait_by_the_monotonic_clock(
    server: ServedProcess, openai_server: OpenAIServer, clock: SetClock
) -> None:
    failure = reply(500, {"error": {"message": "try again"}}, {"retry-after-ms": "50"})
    began = time.monotonic()
    for seconds in (-HOUR, HOUR):
        openai_server.script(_after(clock, seconds, failure))
        assert server.ask().status_code == 200
    assert time.monotonic() - began < 30
    assert len(openai_server.requests) == 4
    _assert_sums(server, 2)
    assert _query(server.folder, "SELECT attempts FROM calls") == [(2,), (2,)]


def test_a_key_expires_by_the_clock(server: ServedProcess, clock: SetClock) -> None:
    key = _key(server, "short", "--expires", "30m")
    assert wait_until(lambda: server.ask(key).status_code == 200)
    for hours, status in ((1, 401), (-1, 200), (-1, 200), (2, 401)):
        clock.forward(hours * HOUR)
        assert server.ask(key).status_code == status


@pytest.mark.soak
def test_a_clock_that_is_set_again_and_again_under_load(
    server: ServedProcess, openai_server: OpenAIServer, clock: SetClock
) -> None:
    keys = [
        _key(server, "total", "--budget", "0.02"),
        _key(server, "daily", "--budget", "0.01/day"),
        _key(server, "limited", "--requests-per-minute", "30"),
        _key(server, "free"),
    ]
    assert wait_until(lambda: server.ask().status_code == 401)
    answered = dict.fromkeys(keys, 0)
    draw = random.Random(5)
    began = time.monotonic()
    next_step = began + 2
    with ThreadPoolExecutor(8) as threads:
        while time.monotonic() < began + 100:
            asked = [(key, {**BODY, "stream": draw.random() < 0.3}) for key in keys for _ in range(2)]
            for (key, _), answer in zip(
                asked, threads.map(lambda each: server.ask(*each), asked), strict=True
            ):
                assert answer.status_code in (200, 429), answer.text
                answered[key] += answer.status_code == 200
            if time.monotonic() > next_step:
                next_step += 2
                clock.forward(HOUR * draw.choice([-1, 1]) if abs(clock.offset_s) < 10**6 else 0)
    seconds = time.monotonic() - began
    _assert_sums(server, sum(answered.values()))
    assert 30 <= answered[keys[2]] <= 30 * (1 + seconds / 60)
    assert answered[keys[0]] * CALL_NANO <= 20_000_000
    for _, nano in _query(server.folder, DAYS):
        assert nano <= 10_000_000 + CALL_NANO  # a call may begin at midnight
    assert _query(server.folder, "SELECT COUNT(*) FROM budget_holds") == [(0,)]
