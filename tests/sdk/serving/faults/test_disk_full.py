"""A full disk: calls go on, their rows are written once there is room, and nothing claimed is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forked_program
import pytest
from batch_server import BatchServer
from full_disk import FullDisk
from gateway_server import upstream_settings, wait_until
from loopback_server import OpenAIServer, reply
from served_process import BODY, COMMAND, ServedProcess

from specclient import AsyncOpenAI, OpenAI

LEDGER = "ledger.sqlite3"
STREAM = {**BODY, "stream": True}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    """A disk of 3 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    with FullDisk(path) as disk:
        yield disk


def _served(disk: FullDisk, upstream: OpenAIServer, folder: Path, **environment: str) -> ServedProcess:
    """Start a server whose ledger, home and temporary files are on the disk."""
    home = str(disk.path)
    ledger = {
        "SPECCLIENT_LEDGER": str(disk.path / LEDGER),
        "SPECCLIENT_CONFIG": str(folder / "specclient.toml"),
    }
    return ServedProcess(
        folder, upstream, prefix=disk.prefix, HOME=home, TMPDIR=home, **ledger, **environment
    )


def _rows(disk: FullDisk) -> int:
    return int(disk.query(LEDGER, "SELECT COUNT(*) FROM calls")[0][0])


def _sums_agree(disk: FullDisk) -> bool:
    rows = "SELECT COUNT(*), SUM(cost_nano) FROM calls"
    return disk.query(LEDGER, rows) == disk.query(
        LEDGER, "SELECT SUM(calls), SUM(cost_nano) FROM calls_by_hour"
    )


def _assert_complete(disk: FullDisk, calls: int) -> None:
    """Check that the ledger has exactly one row for each call, and that its file is sound."""
    assert wait_until(lambda: _rows(disk) >= calls), f"{_rows(disk)} rows of {calls} calls"
    time.sleep(1)
    assert _rows(disk) == calls
    assert _sums_agree(disk)
    assert disk.query(LEDGER, "PRAGMA integrity_check") == [["ok"]]


@pytest.mark.parametrize("durability", ["batch", "sync"])
def test_calls_go_on_and_their_rows_are_written_once_there_is_room(
    disk: FullDisk, openai_server: OpenAIServer, tmp_path: Path, durability: str
) -> None:
    server = _served(disk, openai_server, tmp_path, SPECCLIENT_LEDGER_DURABILITY=durability)
    try:
        rich = server.command("serve", "keys", "create", "rich")
        poor = server.command("serve", "keys", "create", "poor", "--budget", "1")
        assert wait_until(lambda: server.ask().status_code == 401)
        assert [server.ask(key).status_code for key in (rich, poor)] == [200, 200]
        assert wait_until(lambda: _rows(disk) == 2)
        disk.fill()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda body: server.ask(rich, body), [BODY, STREAM] * 30))
        assert {answer.status_code for answer in answers} == {200}
        sent = len(openai_server.requests)
        refused = server.ask(poor)
        assert refused.status_code >= 500
        assert "budget" in refused.json()["error"]["message"]
        assert len(openai_server.requests) == sent, "a call was sent whose cost could not be reserved"
        assert _rows(disk) == 2
        created = server.run("serve", "keys", "create", "bob")
        assert (created.returncode, created.stdout) == (3, "")
        assert "disk is full" in created.stderr
        assert created.stderr.count("\n") == 1
        assert wait_until(lambda: "Calls go on" in server.errors()), (
            "the ledger's thread has not tried to write"
        )
        disk.make_room()
        assert wait_until(lambda: server.ask(poor).status_code == 200), "the budget works again"
        _assert_complete(disk, 63)
        ((spent, calls),) = disk.query(LEDGER, "SELECT nano, calls FROM budget_spend")
        assert (spent, calls) == (2 * 80_000, 2)
        assert disk.query(LEDGER, "SELECT COUNT(*) FROM budget_holds") == [[0]]
        assert disk.query(LEDGER, "SELECT COUNT(*) FROM server_keys WHERE name = 'bob'") == [[0]]
    finally:
        status, _, errors = server.end()
    assert status == 0
    assert errors.count("Calls go on") == 1


def test_a_call_that_ends_on_a_full_disk_is_charged_later(
    disk: FullDisk, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    server = _served(disk, openai_server, tmp_path)
    try:
        key = server.command("serve", "keys", "create", "alice", "--budget", "0.0003")
        assert wait_until(lambda: server.ask().status_code == 401)
        usage = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m-large", "usage": usage}
        message = {"role": "assistant", "content": "hello"}
        answer["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
        openai_server.script(_filled_meanwhile(disk, reply(200, answer)))
        assert server.ask(key).status_code == 200
        ((held,),) = disk.query(LEDGER, "SELECT nano FROM budget_holds")
        assert held > 0, "the reservation stays until the call is charged"
        disk.make_room()
        # Two more calls of $0.000092 fit into $0.0003; a third would not, and the first is counted.
        codes = [server.ask(key).status_code for _ in range(4)]
        assert codes[0] == 200
        assert codes[-1] == 429
        ((spent,),) = disk.query(LEDGER, "SELECT nano FROM budget_spend")
        assert spent == 92_000 + 80_000 * codes.count(200)
        assert spent <= 300_000
    finally:
        server.end()


def _filled_meanwhile(disk: FullDisk, answer: Any) -> Any:
    async def run(received: Any, wire: Any) -> None:
        disk.fill()
        await answer(received, wire)

    return run


def _run(disk: FullDisk, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [*disk.prefix, *words]
    return forked_program.run(command, text=True, env=environment, timeout=120)


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[OpenAIServer], dict[str, str]]:
    """Write the configuration of commands; the value returns their environment for an upstream."""

    def made(upstream: OpenAIServer) -> dict[str, str]:
        file = tmp_path / "specclient.toml"
        file.write_text(
            f'default_model = "mine/m-large"\n[providers.mine]\nbase_url = "{upstream.base_url}"\n'
            'api_key = "k"\n[prices."mine/*"]\ninput = 2\noutput = 8\n'
        )
        ledger = str(tmp_path / "elsewhere.sqlite3")
        return {**os.environ, "SPECCLIENT_CONFIG": str(file), "SPECCLIENT_LEDGER": ledger}

    return made


def test_a_batch_ends_with_one_line_and_resumes(
    disk: FullDisk, tmp_path: Path, configured: Callable[[OpenAIServer], dict[str, str]]
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"call {i}"}) + "\n" for i in range(120)))
    out = disk.outside / "out.jsonl"
    with BatchServer() as upstream:
        environment = configured(upstream)
        batch = (
            *COMMAND,
            "batch",
            str(source),
            str(disk.path / "out.jsonl"),
            "--quiet",
            "--concurrency",
            "4",
        )
        disk.fill(but=8192)
        for _ in range(2):  # the second run begins on the full disk
            done = _run(disk, environment, *batch)
            assert done.returncode == 1
            expected = (
                f"specclient: [Errno 28] No space left on device: '{disk.path / 'out.jsonl'}'; make room"
            )
            assert done.stderr.startswith(expected)
            assert done.stderr.count("\n") == 1
        whole = [
            json.loads(line) for line in out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
        ]
        assert 0 < len(whole) < 120
        disk.make_room()
        done = _run(disk, environment, *batch)
        assert done.returncode == 0, done.stderr
        assert f"{120 - len(whole)} answered · 0 failed · {len(whole)} done before" in done.stderr
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert sorted(record["id"] for record in records) == sorted(range(1, 121))
        assert all(record["output"].startswith("CALL") for record in records)
        again = [prompt for prompt, count in upstream.request_counts.items() if count > 1]
        assert len(again) <= 2 * 4, "only lines in flight may be sent twice"


def test_a_key_that_cannot_be_printed_is_revoked(
    disk: FullDisk, openai_server: OpenAIServer, configured: Callable[[OpenAIServer], dict[str, str]]
) -> None:
    environment = configured(openai_server)
    disk.fill()
    create = f"{' '.join(COMMAND)} serve keys create alice > {disk.path / 'key'}"
    done = _run(disk, environment, "sh", "-c", create)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (disk.outside / "key").read_bytes() == b""
    disk.make_room()
    assert "sk-sc-" in _run(disk, environment, *COMMAND, "serve", "keys", "create", "alice").stdout
    listed = json.loads(_run(disk, environment, *COMMAND, "serve", "keys", "list", "--all", "--json").stdout)
    assert [key["status"] for key in listed["keys"]] == ["revoked", "active"]


def test_downloads_raise_the_disks_error_and_release_their_connection(
    disk: FullDisk, openai_server: OpenAIServer
) -> None:
    settings = upstream_settings(openai_server)
    file = disk.outside / "speech.mp3"
    disk.fill()
    asked = {"model": "mine/tts-1", "voice": "alloy", "input": "hello"}
    sound = reply(200, bytes(2_000_000), {"content-type": "audio/mpeg"})
    openai_server.script(sound, sound)
    with OpenAI(config=settings) as client:
        speech = client.audio.speech.create(**asked)
        with pytest.raises(OSError, match="No space left") as raised:
            speech.write_to_file(file)
        assert raised.value.errno == errno.ENOSPC
        streamed = client.audio.speech.with_streaming_response.create(**asked)
        with streamed as response, pytest.raises(OSError, match="No space left"):
            response.stream_to_file(file)
        assert client.chat.completions.create(**BODY).choices
    disk.make_room()


@pytest.mark.anyio
async def test_an_asynchronous_download_raises_the_disks_error(
    disk: FullDisk, openai_server: OpenAIServer
) -> None:
    disk.fill()
    openai_server.script(reply(200, bytes(2_000_000), {"content-type": "audio/mpeg"}))
    async with AsyncOpenAI(config=upstream_settings(openai_server)) as client:
        speech = client.audio.speech.with_streaming_response
        async with speech.create(model="mine/tts-1", voice="alloy", input="hello") as response:
            with pytest.raises(OSError, match="No space left"):
                await response.stream_to_file(disk.outside / "speech.mp3")
        assert (await client.chat.completions.create(**BODY)).choices


@pytest.mark.soak
def test_a_disk_that_fills_up_again_and_again_loses_no_row(
    disk: FullDisk, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    """The last time it stays full for longer than keys stay valid in memory without being read."""
    server = _served(disk, openai_server, tmp_path)
    answered = 0
    try:
        rich = server.command("serve", "keys", "create", "rich")
        poor = server.command("serve", "keys", "create", "poor", "--budget", "0.1")
        assert wait_until(lambda: server.ask().status_code == 401)
        for seconds in (3, 3, 3, 75):
            assert server.ask(poor).status_code == 200
            answered += 1
            disk.fill(but=20_000)
            end = time.monotonic() + seconds
            with ThreadPoolExecutor(4) as threads:
                while time.monotonic() < end:
                    for answer in threads.map(server.ask, [rich, rich, rich, poor]):
                        assert answer.status_code == 200 or answer.status_code in (429, 500, 503)
                        answered += answer.status_code == 200
                    assert server.ask(rich, STREAM).status_code == 200
                    answered += 1
                    time.sleep(0.1)
            disk.make_room()
            time.sleep(1.5)
        _assert_complete(disk, answered)
        ((spent, calls),) = disk.query(LEDGER, "SELECT nano, calls FROM budget_spend")
        paid = "SELECT SUM(cost_nano), COUNT(*) FROM calls WHERE tags LIKE '%poor%'"
        assert disk.query(LEDGER, paid) == [[spent, calls]]
        assert spent <= 100_000_000
    finally:
        server.end()
