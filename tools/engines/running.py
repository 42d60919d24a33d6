"""Installs the servers, each in an environment of its own, and starts one at a time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engines.catalogue import BUILD, CheckedEngine

_INSTALL_S: Final = 3600.0
_START_S: Final = 900.0
_STOP_S: Final = 60.0


class EngineError(Exception):
    """A server could not be installed or started; the message has the last lines of its output."""


def environment_of(engine: CheckedEngine) -> Path:
    """Return the folder of a server's environment; variants of one server share it."""
    return BUILD / engine.package


def prepare(engine: CheckedEngine, *, fresh: bool) -> None:
    """Make a server's environment, unless it is there and ``fresh`` is false.

    Raises:
        EngineError: the installer failed.
    """
    folder = environment_of(engine)
    if (folder / "ready").exists() and not fresh:
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
        engine.after_install(site)
    (folder / "ready").touch()


def version_of(engine: CheckedEngine) -> str:
    """Return the installed version."""
    site = [str(path) for path in environment_of(engine).glob("lib/python*/site-packages")]
    for distribution in importlib.metadata.distributions(path=[*site, *(sys.path if engine.links else ())]):
        if distribution.name.lower() == engine.package:
            return distribution.version
    return "unknown"


@contextlib.contextmanager
def running(engine: CheckedEngine) -> Iterator[str]:
    """Run a server; yield its base URL once it answers.

    Raises:
        EngineError: it ends, or does not answer in time.
    """
    port = _free_port()
    log = BUILD / f"{engine.name}.log"
    home = BUILD / ".home"
    # transformers serve lists the models of the hub's cache, and fails where there is none
    (home / ".cache" / "huggingface" / "hub").mkdir(parents=True, exist_ok=True)
    variables = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")},
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **engine.variables,
    }
    command = engine.command(environment_of(engine) / "bin", port)
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["nice", "-n", "10", *command],
            stdout=output,
            stderr=output,
            env=variables,
            cwd=home,
            start_new_session=True,
        )
        try:
            _await(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _stop(process)


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
    """End a server and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
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
        raise EngineError(" ".join((done.stderr or done.stdout).strip().splitlines()[-3:])[:600])


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " ".join(lines[-3:])[-600:]
