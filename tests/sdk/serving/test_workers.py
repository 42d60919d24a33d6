"""Worker processes behind one port: shared limits and metrics, replacement, and shutdown."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_server import wait_until
from loopback_server import OpenAIServer, events

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="needs one listening socket shared by several processes"
)

BODY = {"model": "mine/m-large", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
COMMAND = (sys.executable, "-m", "specclient_cli.main")


class WorkerServer:
    """``specclient serve --workers 2`` with a loopback upstream."""

    def __init__(self, folder: Path, upstream: OpenAIServer, *arguments: str, **environment: str) -> None:
        self.folder = folder
        (folder / "specclient.toml").write_text(
            'default_provider = "mine"\n'
            f'[providers.mine]\nbase_url = "{upstream.base_url}"\napi_key = "sk-up"\nmodels = ["m-large"]\n'
            '[prices."mine/*"]\ninput = 2\noutput = 8\n'
        )
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--workers", "2", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=self.environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if found := re.search(r"at (http://\S+)/v1", line):
                self.url = found.group(1)
            if line.startswith("    try "):
                return
        pytest.fail(f"ended: {self.output} {self.process.communicate()}")

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, check=True, cwd=self.folder,
            env=self.environment, timeout=60,
        )  # fmt: skip
        return done.stdout.strip()

    def ask(self, key: str = "", body: Any = BODY) -> httpx.Response:
        """Send a request on a new connection, which any worker may accept."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)

    def workers(self) -> set[int]:
        """Return the process ids of the workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = path.read_text().split() if path.exists() else []
        return {int(pid) for pid in pids if b"spawn_main" in _command_line(pid)}

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


Start = Callable[..., WorkerServer]


@pytest.fixture
def start(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*arguments: str, **environment: str) -> WorkerServer:
            server = WorkerServer(tmp_path, openai_server, *arguments, **environment)
            stack.callback(server.end, signal.SIGTERM)
            return server

        yield started


@pytest.fixture
def redis_url() -> Iterator[str]:
    """Run a real Redis server; yield its URL."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server is installed (apt-get install redis-server)")
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as server:

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        assert wait_until(answers)
        yield f"redis://127.0.0.1:{port}/0"
        server.kill()


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

    assert wait_until(replaced, 40)
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
            assert text.count('"content":"a"') == 6
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


def _command_line(pid: str) -> bytes:
    """Return a process's command line, or nothing if it has ended since its id was read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


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


def _figures(server: WorkerServer, key: str) -> set[float]:
    """Return the call counts that the workers report over several requests."""

    def counted_calls() -> float:
        headers = {"authorization": f"Bearer {key}"}
        text = httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False).text
        found = re.findall(r"^specclient:calls_total\{.*\} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    return {counted_calls() for _ in range(8)}
