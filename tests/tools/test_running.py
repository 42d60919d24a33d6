"""The end of servers that the checks of real servers start."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT
from specclient_local.managed.process_tree import is_running

#: Starts a process; at SIGTERM, tells whether it runs, and ends without it.
_SERVER = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1)
child.stdout.readline()

def end(*_):
    time.sleep(0.5)
    print("runs" if child.poll() is None else "has ended", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
print(child.pid, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def _await(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_server_ends_its_processes_itself_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engines import running

    monkeypatch.setattr(running, "BUILD", tmp_path)
    log = tmp_path / "server.log"
    with running.running_process([sys.executable, "-c", _SERVER], log, {}):
        _await(lambda: log.read_text().endswith("\n"))
        child = int(log.read_text())
    assert log.read_text().splitlines()[1:] == ["runs"]
    _await(lambda: not is_running(child))
