"""``specclient local start``, ``ps`` and ``stop``, and the commands that describe models with servers."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_program import PROGRAM
from managed_engines import lives, stop_all, wait_until
from specclient_local.managed.engine_folder import all_folders
from specclient_local.managed.listing import list_servers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are not started on Windows")


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture
def configured(in_empty_folder: Path) -> Path:
    """A configuration with a server that starts, and one that does not."""
    file = in_empty_folder / "specclient.toml"
    command = f'[{json.dumps(sys.executable)}, "{PROGRAM}", "--port", "{{port}}"'
    file.write_text(
        f'[local.models.big]\npath = "demo"\nengine = "vllm"\ncommand = {command}]\nkeep_alive = 60\n'
        'env = { OWN_KEY = "{key}" }\n'
        f'[local.models.broken]\npath = "demo"\ncommand = {command}, "--fail", '
        '"MemoryError: out of memory"]\n'
    )
    return file


def _key() -> str:
    [state] = [folder.read_state() for folder in all_folders()]
    assert state is not None
    assert state.key
    return state.key


def test_a_server_is_started_listed_called_and_stopped(run, shell, configured: Path) -> None:
    code, out, _ = run("local", "start", "big")
    assert (code, out.splitlines()[0].partition(" (process")[0]) == (0, "local/big is served by vLLM")
    assert "it stops after 60 s without a call; its log is " in out
    key = _key()
    ps = shell("local", "ps")
    [heading, row] = ps.stdout.splitlines()
    assert heading.split() == ["name", "engine", "state", "pid", "port", "memory", "requests", "acceptance"]
    [listed] = list_servers()
    assert row.split()[:5] == ["big", "vLLM", "ready", str(listed.state.pid), str(listed.state.port)]
    assert row.split()[-2:] == ["3", "0.75"], "of its metrics"
    assert "MiB" in row
    values = json.loads(run("local", "ps", "--json")[1])
    assert [(each["name"], each["requests"], each["acceptance_rate"]) for each in values] == [
        ("big", 3, 0.75)
    ]
    code, out, _ = run("complete", "x", "-m", "local/big")
    assert (code, out.strip()) == (0, "one two three")
    again = run("local", "start", "local/big", "--json")
    assert json.loads(again[1])["pid"] == listed.state.pid, "it runs already"
    everything = [ps.stdout, ps.stderr, *map(str, again), json.dumps(values), listed.folder.log.read_text()]
    assert not any(key in text for text in everything)
    assert run("local", "stop", "big")[:2] == (0, "stopped local/big (vLLM)\n")
    assert not lives(listed.state.pid)
    assert run("local", "ps")[1].startswith("no server is running")
    assert run("local", "stop", "big")[:2] == (0, "local/big was not running\n")
    assert json.loads(run("local", "ps", "--all", "--json")[1])[0]["phase"] == "stopped"


def test_a_failed_start_is_told_with_its_log_and_listed(run, configured: Path) -> None:
    code, out, err = run("local", "start", "broken")
    assert (code, out) == (1, "")
    assert "  MemoryError: out of memory" in err.splitlines(), "the log is shown meanwhile"
    assert "Its log ends: " in err.splitlines()[-1]
    assert "There is not enough memory: set a smaller context" in err.splitlines()[-1]
    table = run("local", "ps")[1]
    assert "failed" in table
    assert "MemoryError" in table
    assert run("complete", "x", "-m", "local/broken")[0] == 1


def test_stop_all_stops_servers_of_other_configurations(run, configured: Path) -> None:
    run("local", "start", "big")
    [listed] = list_servers()
    configured.write_text("")
    assert run("local", "stop", "--all")[:2] == (0, "stopped local/big (vLLM)\n")
    assert not lives(listed.state.pid)
    assert run("local", "stop", "--all")[1] == "no server was running\n"


def test_a_killed_command_leaves_a_server_that_stops_by_itself(shell, configured: Path) -> None:
    configured.write_text(configured.read_text().replace("keep_alive = 60", "keep_alive = 1"))
    assert shell("local", "start", "big").returncode == 0
    [listed] = list_servers()
    wait_until(lambda: not lives(listed.state.supervisor), "nobody calls it")
    assert not lives(listed.state.pid)


def test_wrong_uses_are_told(run, configured: Path) -> None:
    code, _, err = run("local", "start", "demo")
    assert code == 3
    assert (
        "no server is configured for 'demo'; calls of local/demo load it in their own process; models" in err
    )
    assert "are: big, broken" in err
    assert run("local", "stop")[0] == 2
    assert run("local", "stop", "--all", "big")[0] == 2


def test_other_commands_know_models_with_servers(run, configured: Path) -> None:
    assert "started by its first call" in run("models", "show", "local/big")[1]
    assert json.loads(run("models", "show", "local/big", "--json")[1])["dialect"] == "openai"
    assert "local/big" in run("models")[1]
    assert "problem" not in run("config", "check")[1]
    assert "--speculative-config" not in run("local", "export", "big", "--to", "vllm")[1]
    assert list_servers() == []


def test_a_server_that_died_is_listed_as_failed(run, configured: Path) -> None:
    run("local", "start", "big")
    [listed] = list_servers()
    os.kill(listed.state.pid, signal.SIGKILL)
    wait_until(lambda: not listed.folder.is_alive(), "its end is noted")
    table = run("local", "ps")[1]
    assert "failed" in table
    assert "SIGKILL" in table
