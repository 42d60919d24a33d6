"""A Ray cluster of one node on this machine, for fleets without a cluster of their own.

Its folder is ``specclient/fleets`` in the user's data folder. ``alive`` is locked by the cluster's first
process as long as it lives, so that a state file of an earlier boot is not believed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from specclient.errors import ConfigurationError, EngineError
from specclient.runtime.folders import user_folder, write_atomically
from specclient_local.managed.engine_folder import locked_now, locked_soon, opened_lock
from specclient_local.managed.process_tree import descendants, has_variable, is_running, session_members

__all__ = ["LocalCluster", "RunningCluster"]

_START_S, _STOP_S, _LOCK_S = 120.0, 5.0, 150.0
"""Seconds for a start, for the end after SIGTERM, and for another program's start. Ray waits half a minute
for tasks of an ending node; the fleets are gone by then."""

_LOG_LINES = 6

_HAS_RAY = "import importlib.util as found; print(found.find_spec('ray') is not None)"
"""Looks for Ray without importing it, which takes seconds."""

_DETACHED = '"$@" >&2 & echo $!'
"""Starts a command that outlives the caller, and prints its process id."""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """The cluster that runs.

    Attributes:
        address: the address of Ray.
        pid: the process id of its first process.
        python: the interpreter of its environment.
        log: path of its output.
        session: the id of the session of its processes; 0 where unknown.
    """

    address: str
    pid: int
    python: str
    log: str
    session: int = 0


class LocalCluster:
    """The user's cluster on this machine.

    Args:
        folder: its files; None for the user's data folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = user_folder("data") / "fleets" if folder is None else folder
        self._state, self._alive = self._folder / "state", self._folder / "alive"
        self._token = self._folder / "token"

    def running(self) -> RunningCluster | None:
        """Return the cluster if it runs."""
        try:
            with opened_lock(self._alive) as handle:
                if locked_now(handle, shared=True):
                    return None
        except OSError:
            return None
        return self._recorded()

    def start(self, python: str, on_line: Callable[[str], None]) -> RunningCluster:
        """Start the cluster unless it runs, and return it.

        Args:
            python: the interpreter of an environment with Ray.
            on_line: receives the progress.

        Raises:
            ConfigurationError: the folder cannot be used.
            EngineError: Ray does not start; the message has the last lines of its output.
        """
        _check_ray(python)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with opened_lock(self._folder / "start") as handle:
                if not locked_soon(handle, _LOCK_S):
                    raise EngineError(
                        f"another program is still starting the local Ray cluster; see {self._log}"
                    )
                if (running := self.running()) is not None:
                    return running
                self.stop()  # what a killed cluster has left
                return self._started(python, on_line)
        except OSError as error:
            raise ConfigurationError(
                f"cannot use {self._folder}: {error.strerror or error}; set XDG_DATA_HOME to "
                "a folder of yours"
            ) from None

    def stop(self) -> bool:
        """End the cluster and all of its processes; return whether any ran.

        If its first process was killed, workers of vLLM may still run, without an end.
        """
        found, is_alive = self._recorded(), self.running() is not None
        if found is None:
            return False
        below = [found.pid, *descendants(found.pid)] if is_alive else []
        if is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(found.pid, signal.SIGTERM)
            end = time.monotonic() + _STOP_S
            while time.monotonic() < end and any(map(is_running, below)):
                time.sleep(0.1)
        below += self._session(found)
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._state.unlink(missing_ok=True)
        _forget(found.address)
        return bool(below)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of programs that use the cluster: Ray asks each for the token of its file."""
        return {**_environment(), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self._token)}

    def _recorded(self) -> RunningCluster | None:
        """Return the cluster of the state file, which may have ended."""
        try:
            return RunningCluster(**json.loads(self._state.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def _session(self, found: RunningCluster) -> list[int]:
        """Return the processes of the cluster's session; none if another session has its id now."""
        members = session_members(found.session) if found.session else []
        token = str(self._token)
        is_own = any(has_variable(pid, "RAY_AUTH_TOKEN_PATH", token) for pid in members)
        return members if is_own else []

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _started(self, python: str, on_line: Callable[[str], None]) -> RunningCluster:
        port = _free_port()
        address = f"127.0.0.1:{port}"
        command = [
            *(python, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"),
            "--disable-usage-stats",
        ]
        on_line(f"starting a Ray cluster on this machine at {address}")
        with opened_lock(self._alive) as handle:
            if not locked_now(handle):
                raise EngineError("a local Ray cluster is still ending; try again in a few seconds")
            write_atomically(self._token, secrets.token_hex(32))  # only the user can read it
            with self._log.open("wb") as output:
                launched = subprocess.run(  # noqa: S603 - the user's own interpreter
                    ["/bin/sh", "-c", _DETACHED, "sh", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    env=self.environment,
                    pass_fds=(handle,),  # the cluster holds the lock from now on
                    start_new_session=True,
                    check=True,
                )
        pid = int(launched.stdout)
        found = RunningCluster(address, pid, python, str(self._log), _session_of(pid))
        write_atomically(self._state, json.dumps(asdict(found)))
        end = time.monotonic() + _START_S
        while b"Ray runtime started" not in self._log.read_bytes():
            if not is_running(found.pid) or time.monotonic() > end:
                self.stop()
                raise EngineError(f"Ray did not start: {self._last_lines()} (log: {self._log})")
            time.sleep(0.1)
        return found

    def _last_lines(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-_LOG_LINES:])[-600:] or "no output"


def _check_ray(python: str) -> None:
    """Check that an interpreter has Ray, before anything of a cluster is started.

    Raises:
        EngineError: it has none, or cannot be run.
    """
    try:
        found = subprocess.run(  # noqa: S603 - the user's own interpreter
            [python, "-c", _HAS_RAY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise EngineError(f"{python} cannot be run: {error.strerror or error}") from None
    if found.returncode:
        said = found.stderr.strip().splitlines()
        raise EngineError(
            f"{python} cannot be used: {said[-1] if said else f'it ended with status {found.returncode}'}"
        )
    if found.stdout.strip() != "True":
        raise EngineError(
            f"{python} has no Ray; name the interpreter of an environment with ray[serve] and vLLM "
            "as 'python' in the fleet's table, or run pip install 'specclient[ray]' for this one"
        )


def _environment() -> Mapping[str, str]:
    """Return the environment of the cluster: without keys, and without the address of another cluster."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_ADMIN_KEY", "_SERVER_KEY"))}
    kept.pop("RAY_ADDRESS", None)
    return {"RAY_worker_niceness": "0", **kept}  # replicas are no background work


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended already
        return 0


def _forget(address: str) -> None:
    """Remove the file by which Ray's programs find the newest cluster of this machine, if it is this one."""
    file = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    with suppress(OSError):
        if file.read_text(encoding="utf-8").strip().rpartition(":")[2] == address.rpartition(":")[2]:
            file.unlink()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
