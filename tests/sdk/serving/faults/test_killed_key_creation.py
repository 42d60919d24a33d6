"""``kill -9`` of a server and of ``serve keys create``: each printed key works, and no key is half stored."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from forked_program import ForkedProgram
from loopback_server import OpenAIServer
from served_process import COMMAND, ServedProcess

from specclient.ledger.sqlite import SQLiteStore
from specclient.serving.keys.key import digest_of
from specclient.serving.keys.store import KeyStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")

#: Arguments whose values take several columns of a stored key.
GRANTED = ("--budget", "1/day", "--model", "mine/*", "--tag", "team=web", "--requests-per-minute", "999")


def _create(server: ServedProcess, name: str, seconds: float | None, *, then_kill: bool = False) -> str:
    """Create a key, or kill the command after some seconds or when it prints; return what it printed."""
    command = [*COMMAND, "serve", "keys", "create", name, *GRANTED]
    with ForkedProgram(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=server.folder,
        env=server.environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        if then_kill:
            line = process.stdout.readline()
            process.kill()
            return line
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]


@pytest.mark.parametrize(
    ("creations", "kills"),
    [
        pytest.param(6, 1, id="6"),
        pytest.param(300, 20, id="300", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
)
def test_each_printed_key_works_whatever_is_killed(
    tmp_path: Path, openai_server: OpenAIServer, creations: int, kills: int
) -> None:
    file, random = tmp_path / "keys.sqlite3", Random(7)
    environment = {"SPECCLIENT_LEDGER": str(file)}
    server = ServedProcess(tmp_path, openai_server, **environment)
    printed: dict[str, str] = {}
    try:
        begun = time.monotonic()
        printed["first"] = _create(server, "first", None)
        usual_s = time.monotonic() - begun

        def create(number: int) -> None:
            # A third is killed at a random moment, near the commit and the printing, a third when it prints.
            seconds = usual_s * random.uniform(0.6, 1.6) if number % 3 == 1 else None
            printed[f"k{number}"] = _create(server, f"k{number}", seconds, then_kill=number % 3 == 2)

        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(create, number) for number in range(creations)]
            for _ in range(kills):
                time.sleep(random.random())
                server.ask(printed["first"].strip())  # writes to the database, too
                server.process.kill()
                server.end()
                server = ServedProcess(tmp_path, openai_server, **environment)
            for each in asked:
                each.result()
        _check_keys(server, file, printed)
    finally:
        server.end()


def _check_keys(server: ServedProcess, file: Path, printed: dict[str, str]) -> None:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store = KeyStore(SQLiteStore(str(file)))
    stored = {key.name: key for key in store.all()}
    assert set(stored) <= set(printed)
    expected = {"models": ("mine/*",), "tags": {"team": "web"}, "budget_nano": 10**9, "period": "day"}
    for key in stored.values():
        assert key.status(datetime.now(UTC)) == "active"
        assert {name: getattr(key, name) for name in expected} == expected
    for name, text in printed.items():
        if text:
            assert text.endswith("\n"), f"half a key was printed: {text!r}"
            assert stored[name].digest == digest_of(text.strip())
            assert server.ask(text.strip()).status_code == 200
        elif name in stored:  # killed between the commit and the printing
            store.revoke(name, datetime.now(UTC))
    store.close()
