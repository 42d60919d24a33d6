"""Workers that are killed during streams, batches and ledger writes harm no other client, row or budget."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import httpx
import pytest
from batch_server import records, write_lines
from forked_program import ForkedProgram
from gateway_server import wait_until
from loopback_server import OpenAIServer, Received, Wire, behave, events
from served_process import BODY, COMMAND, ServedProcess

from specclient.budgets.budgets import LEASE_S, Budgets
from specclient.config import Settings
from specclient.ledger.ledger import Ledger
from specclient.ledger.sqlite import SQLiteStore
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.serving.keys.store import KeyStore

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")

#: Seconds before a kill in which an answered call may have no row with the durability ``batch``. They are
#: more than the documented half second, because a loaded machine may delay the writer.
GRACE_S = 2.5
#: Seconds after a kill in which a client may note an answer that was sent before it.
SEEN_S = 1.0
#: Nano-dollars of one answer of the upstream: 4 prompt tokens at 2 dollars a million, 9 others at 8.
COST_NANO = 80_000
FRAMES = 16

Serve = Callable[..., ServedProcess]


async def _answer(received: Received, wire: Wire) -> None:
    """Answer as usual, after a moment in which the worker may be killed; a stream takes seconds."""
    await asyncio.sleep(0.02)
    if not received.json.get("stream"):
        return await behave(received, wire)
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    frame = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return await events(*[frame] * FRAMES, b"data: [DONE]\n\n", gap=0.5)(received, wire)


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    with OpenAIServer(_answer) as server:
        yield server


@pytest.fixture
def serve(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Serve]:
    with ExitStack() as stack:

        def served(**environment: str) -> ServedProcess:
            server = ServedProcess(tmp_path, openai_server, "--workers", "2", **environment)
            stack.callback(server.end)
            assert wait_until(lambda: len(server.workers()) == 2)
            return server

        yield served


def _accepted(pid: int, port: int) -> int:
    """Return the number of a process's connections from clients of a port."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(entry.readlink().name)
        except OSError:  # closed meanwhile
            continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" and f"socket:[{row[9]}]" in inodes
        for row in rows
    )


def _stream(url: str) -> str:
    """Return a whole stream, or the empty string where the connection broke."""
    try:
        with httpx.Client(timeout=60, trust_env=False) as client:
            return client.post(f"{url}/v1/chat/completions", json={**BODY, "stream": True}).text
    except httpx.TransportError:
        return ""


def test_a_killed_worker_breaks_its_own_streams_alone(serve: Serve, openai_server: OpenAIServer) -> None:
    server = serve()
    port = urlsplit(server.url).port
    assert port is not None
    with ThreadPoolExecutor(60) as threads:
        asked: list[Future[str]] = []
        counts: dict[int, int] = {}
        while len(counts) < 2 or min(counts.values()) < 2:
            assert len(asked) < 60, f"one worker accepted all connections: {counts}"
            asked += [threads.submit(_stream, server.url) for _ in range(6)]
            count = len(asked)
            assert wait_until(lambda n=count: len(openai_server.requests) == n)
            counts = {pid: _accepted(pid, port) for pid in server.workers()}
        victim = min(counts)
        os.kill(victim, signal.SIGKILL)
        answers = [each.result() for each in asked]
    broken = answers.count("")
    assert broken == counts[victim]
    whole = [text for text in answers if text]
    assert all(text.count('"content": "a"') == FRAMES for text in whole)
    assert all(text.endswith("data: [DONE]\n\n") for text in whole)
    assert wait_until(lambda: len(server.workers() - {victim}) == 2), "the killed worker was not replaced"
    assert {server.ask().status_code for _ in range(6)} == {200}


@dataclass
class Sent:
    """The calls of clients of a server whose workers are killed.

    Attributes:
        answered: the time of each complete answer, by the call's session.
        kills: the times of the kills.
    """

    answered: dict[str, float] = field(default_factory=dict)
    kills: list[float] = field(default_factory=list)

    def ask(self, server: ServedProcess, key: str, prefix: str, ended: threading.Event) -> None:
        """Send calls until the budget of the key is spent."""
        number = 0
        while not ended.is_set():
            number += 1
            session = f"{prefix}-{number}"
            try:
                answer = server.ask(key, {**BODY, "specclient": {"session": session}})
            except httpx.TransportError:  # of a killed worker
                continue
            if answer.status_code == 429:
                assert answer.json()["error"]["code"] == "insufficient_quota", answer.text
                ended.set()
                return
            assert answer.status_code == 200, answer.text
            self.answered[session] = time.monotonic()

    def kill_workers(
        self, server: ServedProcess, times: int, is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """Kill one worker after the other, at random moments after ``is_due`` holds."""
        random = Random(9)
        for _ in range(times):
            assert wait_until(is_due, 60)
            time.sleep(0.3 + random.random())
            assert wait_until(lambda: len(server.workers()) == 2)
            self.kills.append(time.monotonic())
            os.kill(random.choice(sorted(server.workers())), signal.SIGKILL)


@pytest.mark.parametrize("durability", ["batch", "sync"])
@pytest.mark.parametrize(
    "kills",
    [pytest.param(2, id="2"), pytest.param(40, id="40", marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_kills_lose_no_row_and_reopen_no_budget(
    serve: Serve, openai_server: OpenAIServer, tmp_path: Path, durability: str, kills: int
) -> None:
    ledger_file = tmp_path / "kills.sqlite3"
    server = serve(SPECCLIENT_LEDGER=str(ledger_file), SPECCLIENT_LEDGER_DURABILITY=durability)
    key = server.command("serve", "keys", "create", "poor", "--budget", str(Decimal("0.02") * kills))
    sent, ended = Sent(), threading.Event()
    before = len(openai_server.requests)
    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(sent.ask, server, key, f"c{n}", ended) for n in range(4)]
        sent.kill_workers(
            server, kills, lambda: ended.is_set() or len(sent.answered) > 20 * len(sent.kills) + 20
        )
        ended.wait(1)
        ended.set()
        for client in clients:
            client.result()
    assert server.end()[0] == 0
    begun = len(openai_server.requests) - before
    ledger = Ledger(str(ledger_file))
    rows = Counter(row.session for row in ledger.iterate())
    assert max(rows.values()) == 1
    missing = {session: at for session, at in sent.answered.items() if session not in rows}
    if durability == "sync":
        assert missing == {}
    else:
        early = [min(kill - at for kill in sent.kills if kill > at - SEEN_S) for at in missing.values()]
        assert all(seconds < GRACE_S for seconds in early), early
    assert sum(sums.calls for sums in ledger.rollup()) == rows.total()
    (stored,) = KeyStore(SQLiteStore(str(ledger_file))).all()
    later = datetime.now(UTC) + timedelta(seconds=LEASE_S)
    prices = Prices(Settings.model_validate({}))
    assert stored.budget is not None
    budgets = Budgets([stored.budget], prices, Estimator(), ledger, now=lambda: later)
    (standing,) = budgets.standings()
    ledger.close()
    assert sent.answered
    assert standing.reserved == 0
    assert begun * COST_NANO <= standing.spent <= (stored.budget_nano or 0)
    assert standing.calls >= begun, "a call that was sent does not count"


@pytest.mark.parametrize(
    ("lines", "kills"),
    [
        pytest.param(150, 2, id="150"),
        pytest.param(6000, 30, id="6000", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_a_batch_survives_kills_of_workers_and_of_itself(
    serve: Serve, tmp_path: Path, lines: int, kills: int
) -> None:
    server = serve()
    folder = tmp_path / "batch"
    folder.mkdir()
    (folder / "specclient.toml").write_text(
        f'default_model = "gate/m-large"\n[providers.gate]\nbase_url = "{server.url}/v1"\napi_key = "any"\n'
    )
    write_lines(folder / "in.jsonl", [{"id": f"id-{n}", "prompt": f"p {n}"} for n in range(lines)])
    environment = {**os.environ, "SPECCLIENT_LEDGER": str(folder / "ledger.sqlite3")}
    command = [*COMMAND, "batch", "in.jsonl", "out.jsonl", "--concurrency", "4"]
    sent, random = Sent(), Random(3)
    out = folder / "out.jsonl"

    def start() -> subprocess.Popen[bytes]:
        return ForkedProgram(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(sent.kill_workers, server, kills)
        for _ in range(kills):
            size = _size(out)
            with start() as batch:
                wait_until(lambda n=size, b=batch: b.poll() is not None or _size(out) > n, 60)
                time.sleep(random.random() / 2)
                batch.kill()
        with start() as batch:  # while workers are killed
            status = batch.wait(300)
        killing.result()
    if status:  # lines that failed in spite of the client's retries are tried again
        with start() as batch:
            assert batch.wait(300) == 0
    assert Counter(record["id"] for record in records(out)) == Counter(f"id-{n}" for n in range(lines))
    assert all(record["error"] is None for record in records(out))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
