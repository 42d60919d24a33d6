"""The folder of one managed server: its locks, its state file and its log.

=========  ================================================================================================
``start``  locked by a program while it starts the supervisor
``alive``  locked by the supervisor, and its guard, as long as they live
``users``  locked, shared, by each program with calls in progress; locked by the supervisor while it stops
           the server because it is idle; its modification time is the end of the latest call
``state``  the state as JSON, which only its owner may read, because it has the server's API key
``log``    the output of the server
=========  ================================================================================================

Locks are released by the kernel with the processes that hold them, so a file that a dead process or an
earlier boot of the machine has left locks nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from specclient.errors import ConfigurationError
from specclient.runtime.folders import user_folder, write_atomically

if sys.platform != "win32":
    import fcntl

Phase = Literal["starting", "ready", "stopping", "stopped", "failed"]

_FOLDER = "engines"
_LOCK_S = 5.0
"""Seconds within which a lock that others hold for an instant is acquired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedState:
    """The state of a server, as its supervisor writes it.

    Attributes:
        name: the model's name in the configuration.
        engine: the kind of server; ``title``: its display name.
        phase: see :data:`Phase`. While the supervisor lives, ``stopped`` and ``failed`` mean that it is about
            to end; ``starting`` and ``ready`` of a supervisor that does not live are outdated.
        run: identifies this run of the supervisor.
        supervisor, pid: process ids of the supervisor and of the server; 0 for none.
        port: the server's port; 0 for none.
        key: the server's API key; empty once it has ended.
        model: the model's name in requests.
        metrics: whether its counters must be read, because its answers do not report speculation.
        keyed: whether it refuses requests without the key; None if unknown.
        was_ready: whether this run has answered.
        keep_alive: seconds without a call after which it is stopped; 0 for never.
        since: seconds since 1970 of the last change of ``phase``.
        failures: the number of runs in a row that ended by themselves.
        next_start: seconds since 1970 before which it is not started again.
        error: why it ended, a paragraph; empty otherwise.
        log: path of the log.
    """

    name: str
    engine: str
    title: str
    phase: Phase
    run: str = ""
    supervisor: int = 0
    pid: int = 0
    port: int = 0
    key: str = field(default="", repr=False)
    model: str = ""
    metrics: bool = False
    keyed: bool | None = None
    was_ready: bool = False
    keep_alive: float = 0.0
    since: float = 0.0
    failures: int = 0
    next_start: float = 0.0
    error: str = ""
    log: str = ""

    @property
    def base_url(self) -> str:
        """The base URL of the server's API."""
        return f"http://127.0.0.1:{self.port}/v1"


class EngineFolder:
    """The files of one managed server.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start, self.alive, self.users = path / "start", path / "alive", path / "users"
        self.state_file, self.log = path / "state", path / "log"

    def make(self) -> None:
        """Create the folder, which only its owner may use.

        Raises:
            ConfigurationError: it cannot be created, or belongs to somebody else.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_uid != os.getuid():
                raise PermissionError(0, "it belongs to another user")
        except OSError as error:
            raise ConfigurationError(
                f"cannot use {self.path}: {error.strerror or error}; set XDG_DATA_HOME to a folder of yours"
            ) from None

    def read_state(self) -> ManagedState | None:
        """Return the state; None if there is none, or it is invalid."""
        try:
            raw = json.loads(self.state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        known = {each.name for each in fields(ManagedState)}
        if not isinstance(raw, dict) or not {"name", "engine", "title", "phase"} <= raw.keys() <= known:
            return None
        return ManagedState(**raw) if all(_fits(name, value) for name, value in raw.items()) else None

    def write_state(self, state: ManagedState) -> None:
        """Write the state, so that readers see the old one or the new."""
        write_atomically(self.state_file, json.dumps(asdict(state)))

    def is_alive(self) -> bool:
        """Return whether a supervisor of this server lives."""
        with suppress(OSError), opened_lock(self.alive) as handle:
            return not locked_now(handle, shared=True)
        return False

    def mtime(self, path: Path) -> float:
        """Return the modification time of a file in seconds since 1970; 0 if it does not exist."""
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0


def engines_folder() -> Path:
    """Return the folder that holds a folder for each managed server."""
    return user_folder("data") / _FOLDER


def all_folders() -> list[EngineFolder]:
    """Return the folders of all managed servers that have been started, by name."""
    try:
        return [EngineFolder(path) for path in sorted(engines_folder().iterdir()) if path.is_dir()]
    except OSError:
        return []


@contextmanager
def opened_lock(path: Path) -> Iterator[int]:
    """Open a lock file; closing it releases the lock, unless a forked process has it open, too."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def locked_now(handle: int, *, shared: bool = False) -> bool:
    """Acquire a lock if that is possible at once, and return whether it was."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(handle: int) -> None:
    """Release a lock."""
    fcntl.flock(handle, fcntl.LOCK_UN)


def locked_soon(handle: int, seconds: float = _LOCK_S) -> bool:
    """Acquire a lock within some seconds, and return whether that was possible."""
    end = time.monotonic() + seconds
    while not locked_now(handle):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def state_values(state: ManagedState) -> Mapping[str, Any]:
    """Return a state for display: everything but the key."""
    return {name: value for name, value in asdict(state).items() if name != "key"}


def _fits(name: str, value: object) -> bool:
    """Return whether a value of a state file has its field's type."""
    if name == "phase":
        return value in get_args(Phase)
    default = next(each.default for each in fields(ManagedState) if each.name == name)
    if default is None:
        return value is None or isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    return isinstance(value, int if isinstance(default, int) else str)
