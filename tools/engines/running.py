"""Installs the servers, each in an environment of its own, and starts one at a time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engines.catalogue import engine_named
from engines.checked_engine import BUILD, CheckedEngine, Start

_INSTALL_S: Final = 3600.0
_START_S: Final = 1800.0
_STOP_S: Final = 60.0


class EngineError(Exception):
    """A server could not be installed or started; the message has the last lines of its output."""


@dataclass(frozen=True)
class RunningServer:
    """A running server.

    Attributes:
        base_url: of its API.
        models_url: base URL of the server with the models: its own, or that of the server behind it.
    """

    base_url: str
    models_url: str


def environment_of(engine: CheckedEngine) -> Path:
    """Return the folder of a server's environment; several servers may share it."""
    return BUILD / engine.environment if engine.environment else Path(sys.prefix)


def prepare(engine: CheckedEngine, *, fresh: bool) -> None:
    """Make the environments of a server and of the one behind it, unless they are there.

    Args:
        fresh: whether they are made anew.

    Raises:
        EngineError: the installer failed.
    """
    if engine.behind:
        prepare(engine_named(engine.behind), fresh=fresh)
    folder = environment_of(engine)
    if not engine.environment or ((folder / "ready").exists() and not fresh):
        return
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    site = next(folder.glob("lib/python*/site-packages"))
    if engine.links:
        _link_torch(site)
    _run([*pip, "install", *engine.requirements])
    if engine.removed:
        _run([*pip, "uninstall", "--yes", *engine.removed])
    if engine.after_install is not None:
        try:
            engine.after_install(site)
        except subprocess.CalledProcessError as error:
            raise EngineError(_last_lines(error.stderr or error.stdout or str(error))) from error
    (folder / "ready").touch()


def version_of(engine: CheckedEngine) -> str:
    """Return the installed version."""
    if not engine.environment:
        return importlib.metadata.version(engine.package)
    site = [str(path) for path in environment_of(engine).glob("lib/python*/site-packages")]
    for distribution in importlib.metadata.distributions(path=[*site, *(sys.path if engine.links else ())]):
        if distribution.name.lower() == engine.package:
            return distribution.version
    return "unknown"


@contextlib.contextmanager
def running(engine: CheckedEngine) -> Iterator[RunningServer]:
    """Run a server, and the one behind it; yield it once it answers.

    Raises:
        EngineError: it ends, or does not answer in time.
    """
    with contextlib.ExitStack() as stack:
        upstream = ""
        if engine.behind:
            upstream = stack.enter_context(running(engine_named(engine.behind))).base_url
        port, log = _free_port(), BUILD / f"{engine.name}.log"
        command = engine.command(Start(environment_of(engine) / "bin", port, upstream))
        process = stack.enter_context(running_process(command, log, engine.variables))
        _await(process, port, log)
        base_url = f"http://127.0.0.1:{port}/v1"
        yield RunningServer(base_url, upstream or base_url)


@contextlib.contextmanager
def running_process(
    command: list[str], log: Path, variables: Mapping[str, str], *, piped: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with a home of its own and no access to hubs; end it and its children after the block.

    Args:
        command: its arguments.
        log: the file of its output.
        variables: of its environment, besides a few that it inherits.
        piped: whether the caller writes to its input and reads its output; ``log`` then has its errors only.
    """
    home = BUILD / ".home"
    # transformers serve lists the models of the hub's cache, and fails where there is none
    (home / ".cache" / "huggingface" / "hub").mkdir(parents=True, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")},
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["nice", "-n", "10", *command],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else output,
            stderr=output,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _stop(process)


class RunningFleet:
    """Replicas that ``ray_fleet.py`` runs, and that commands change.

    Args:
        process: runs them; its input and output are pipes.
        base_url: their endpoint.
    """

    def __init__(self, process: subprocess.Popen[bytes], base_url: str) -> None:
        self._process = process
        self._lock = threading.Lock()
        self.base_url = base_url

    def ask(self, command: Mapping[str, Any] | None) -> Any:
        """Give a command, and return its answer; without a command, the next answer.

        Raises:
            EngineError: the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            if command is not None:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith(b"@ "):
                    return json.loads(line[2:])
        raise EngineError("the fleet's process has ended")


@contextlib.contextmanager
def running_fleet(engine: CheckedEngine) -> Iterator[RunningFleet]:
    """Run the replicas of a server of ``ray_fleet.py``; yield them when they are ready.

    Raises:
        EngineError: the process ends before that.
    """
    port, log = _free_port(), BUILD / f"{engine.name}-fleet.log"
    command = engine.command(Start(environment_of(engine) / "bin", port))
    with running_process(command, log, engine.variables, piped=True) as process:
        fleet = RunningFleet(process, f"http://127.0.0.1:{port}/v1")
        try:
            fleet.ask(None)
        except EngineError:
            raise EngineError(_tail(log)) from None
        yield fleet


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise EngineError(f"it ended with status {process.returncode}: {_tail(log)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise EngineError(f"no answer within {_START_S:.0f} s: {_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, and then what is left of the processes that it started.

    SIGTERM goes to the server alone: Ray cannot end its replicas when its own processes have it, too.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_S)


def _link_torch(site: Path) -> None:
    """Put the packages of the environment that runs this last on the path of another one."""
    own = Path(importlib.metadata.distribution("torch").locate_file(""))  # type: ignore[arg-type]
    (site / "zz-engine.pth").write_text(f"{own}\n", encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    if done.returncode != 0:
        raise EngineError(_last_lines(done.stderr or done.stdout))


def _tail(log: Path) -> str:
    return _last_lines(log.read_text(encoding="utf-8", errors="replace"))


def _last_lines(text: str) -> str:
    return " ".join(text.strip().splitlines()[-3:])[-600:]
