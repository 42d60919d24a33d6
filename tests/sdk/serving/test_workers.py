"""Worker processes behind one port: shared limits and metrics, replacement, and shutdown."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from gateway_server import wait_until
from loopback_server import OpenAIServer, events
from redis_server import RedisServer
from served_process import BODY, COMMAND, ServedProcess

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="needs one listening socket shared by several processes"
)

Start = Callable[..., ServedProcess]


@pytest.fixture
def start(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*arguments: str, **environment: str) -> ServedProcess:
            server = ServedProcess(tmp_path, openai_server, "--workers", "2", *arguments, **environment)
            stack.callback(server.end, signal.SIGTERM)
            return server

        yield started


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """Run a real Redis server; yield its URL."""
    with RedisServer(tmp_path) as redis:
        yield redis.url.get_secret_value()


def test_two_workers_share_a_keys_budget_and_limits(
    start: Start, openai_server: OpenAIServer, redis_url: str
) -> None:
    server = start(SPECCLIENT_REDIS_URL=redis_url)
    rich = server.command("serve", "keys", "create", "rich", "--requests-per-minute", "12")
    poor = server.command("serve", "keys", "create", "poor", "--budget", "0.0008/day")
    assert wait_until(lambda: server.ask().status_code == 401), "a worker did not notice the new keys"
    time.sleep(2.1)
    before = len(openai_server.requests)
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda key: (key, server.ask(key)), [rich, poor] * 24))
    assert {answer.status_code for _, answer in answers} == {200, 429}
    served = {name: sum(a.status_code == 200 for k, a in answers if k == name) for name in (rich, poor)}
    assert served[rich] == 12
    assert 1 <= served[poor] <= 10
    assert sum(served.values()) == len(openai_server.requests) - before
    assert _figures(server, rich) == {float(len(openai_server.requests))}, (
        "each worker reports the sum of all"
    )
    codes = {answer.json()["error"]["code"] for _, answer in answers if answer.status_code == 429}
    assert codes == {"rate_limit_exceeded", "insufficient_quota"}
    server.command("serve", "keys", "revoke", "rich")
    assert wait_until(lambda: {server.ask(rich).status_code for _ in range(4)} == {401}), (
        "a worker still accepts the revoked key"
    )
    assert server.end()[0] == 0
    listed = {
        row["name"]: row
        for row in json.loads(server.command("serve", "keys", "list", "--all", "--json"))["keys"]
    }
    assert Decimal(listed["poor"]["spent_usd"]) == served[poor] * Decimal("0.00008") <= Decimal("0.0008")
    assert listed["poor"]["used_at"] is not None
    report = json.loads(server.command("cost", "report", "--by", "tag:key", "--json"))
    report_text = json.dumps(report)
    assert '"poor"' in report_text
    assert rich[12:] not in report_text + server.output


def test_a_dead_worker_is_replaced_and_signals_let_streams_finish(
    start: Start, openai_server: OpenAIServer
) -> None:
    server = start()
    assert wait_until(lambda: server.ask().status_code == 200)
    if not Path("/proc/self/task").exists():
        pytest.skip("reads the child processes from /proc")
    assert wait_until(lambda: len(server.workers()) == 2)
    old = server.workers()
    victim = min(old)
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: len(server.workers() - {victim}) == 2), "the killed worker was not replaced"
    assert all(server.ask().status_code == 200 for _ in range(6))
    old = server.workers()
    server.process.send_signal(signal.SIGHUP)
    answers: list[int] = []

    def replaced() -> bool:
        answers.append(server.ask().status_code)
        return len(server.workers()) == 2 and not server.workers() & old

    assert wait_until(replaced, 40, rest=0)
    assert set(answers) == {200}, "a request failed during the reload"
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunk["choices"] = [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]
    frame = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    openai_server.script(*[events(*[frame] * 6, b"data: [DONE]\n\n", gap=0.3)] * 6)
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(server.ask, "", {**BODY, "stream": True}) for _ in range(6)]
        assert wait_until(lambda: sum(b"stream" in r.body for r in openai_server.requests) == 6)
        server.process.send_signal(signal.SIGTERM)
        for answer in asked:
            text = answer.result().text
            assert text.count('"content": "a"') == 6
            assert text.endswith("data: [DONE]\n\n")
    pids = server.workers()
    assert server.end()[:2] == (0, "Stopped.\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_workers_exit_when_their_parent_process_is_killed(start: Start) -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("reads the child processes from /proc")
    server = start()
    assert wait_until(lambda: len(server.workers()) == 2 and server.ask().status_code == 200)
    pids = server.workers()
    server.process.kill()
    assert wait_until(lambda: not any(_runs(pid) for pid in pids)), "the workers did not exit"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_failed_start_of_the_workers_ends_the_command(tmp_path: Path, openai_server: OpenAIServer) -> None:
    command = [*COMMAND, "serve", "--port", "0", "--workers", "2", "--preload", "--model", "local/nothing"]
    done = subprocess.run(
        [*command, "--model-per-worker"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "local/nothing is unknown" in done.stderr
    assert "Stopped." not in done.stdout


def _figures(server: ServedProcess, key: str) -> set[float]:
    """Return the call counts that the workers report over several requests."""

    def counted_calls() -> float:
        headers = {"authorization": f"Bearer {key}"}
        text = httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False).text
        found = re.findall(r"^specclient:calls_total\{.*\} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    return {counted_calls() for _ in range(8)}
