"""The processes below a process: found, ended and measured. On Linux from ``/proc``; elsewhere by group."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LISTEN = "0A"
_ENDING_S = 5.0
"""Seconds after SIGKILL that processes are waited for; one in uninterruptible sleep may take longer."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, so that none is lost (Linux)."""
    if _LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends (Linux).

    Args:
        parent: the parent's process id. If it has ended already, this process ends now.
    """
    if _LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Return the ids of all living processes below a process; without ``/proc``, an empty list."""
    children: dict[int, list[int]] = {}
    for name in _entries(_PROC):
        if name.isdigit() and (parent := _parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found, rest = [], [root]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found


def session_members(session: int) -> list[int]:
    """Return the ids of the living processes of a session; without ``/proc``, an empty list.

    Args:
        session: its id, the process id of its first process, which may have ended.
    """
    found = []
    for name in _entries(_PROC):
        with suppress(OSError, ValueError, IndexError):
            state, _, _, own, *_ = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            if int(own) == session and state not in (b"Z", b"X"):
                found.append(int(name))
    return found


def has_variable(pid: int, name: str, value: str) -> bool:
    """Return whether a process of this user was started with a variable of this value; unknown is False."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{name}={value}".encode() in variables


def _entries(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _parent_of(pid: int) -> int | None:
    """Return a process's parent; None for a process that has ended, of which only the status is left."""
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # every call of a model asks for one
        try:
            state, parent = os.read(handle, 4096).rpartition(b")")[2].split()[:2]
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def is_running(pid: int) -> bool:
    """Return whether a process of this user runs; one that has ended and was not reaped does not (Linux)."""
    if pid <= 0:
        return False
    if _LINUX:
        return _parent_of(pid) is not None
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def kill_below(root: int, group: int = 0) -> bool:
    """Kill all processes below this one, and a process group; wait for them.

    Args:
        root: this process, which reaps them.
        group: the group of the server, which is all that is known without ``/proc``; 0 for none.

    Returns:
        Whether all have ended.
    """
    end = time.monotonic() + _ENDING_S
    while True:
        if group and not _LINUX:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        below = descendants(root)
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap_all()
        if not below:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)


def reap_all() -> dict[int, int]:
    """Take the status of all children that have ended, by process id."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def resident_bytes(pids: list[int]) -> int | None:
    """Return the resident memory of processes, shared pages once for each; None if it is unknown."""
    total, found = 0, False
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            total += int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            found = True
    return total if found else None


def listens(pids: list[int], port: int) -> bool | None:
    """Return whether one of some processes listens on a TCP port; None if that is unknown.

    A program that has taken the port meanwhile is not mistaken for the server.
    """
    sockets = _listening(port)
    if not sockets or "socket:[0]" in sockets:
        return None
    for pid in pids:
        folder = _PROC / str(pid) / "fd"
        for name in _entries(folder):
            with suppress(OSError):
                if str((folder / name).readlink()) in sockets:
                    return True
    return False


def _listening(port: int) -> set[str]:
    """Return the sockets that listen on a TCP port, by the names that file descriptors have in ``/proc``."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if len(words) > 9 and words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{words[9]}]")
    return found
