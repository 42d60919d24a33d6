"""All managed servers of the user, for ``specclient local ps`` and ``stop``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from specclient_local.managed.engine_folder import EngineFolder, ManagedState, all_folders
from specclient_local.managed.process_tree import descendants, resident_bytes

_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A managed server.

    Attributes:
        folder: its files.
        state: its state; an outdated phase is ``stopped``.
        alive: whether its supervisor lives.
        memory: resident bytes of all its processes; None if unknown.
        idle_s: seconds since the last call ended; None without calls, or while it does not run.
    """

    folder: EngineFolder
    state: ManagedState
    alive: bool
    memory: int | None
    idle_s: float | None


def list_servers(name: str | None = None) -> list[ListedServer]:
    """Return the managed servers, by name; those that have ended, too.

    Args:
        name: of a model; None for all.
    """
    found: list[ListedServer] = []
    for folder in all_folders():
        alive = folder.is_alive()
        state = folder.read_state()
        if state is not None and name in (None, state.name):
            found.append(_listed(folder, state, alive=alive))
    return sorted(found, key=lambda each: (each.state.name, -each.state.since))


def _listed(folder: EngineFolder, state: ManagedState, *, alive: bool) -> ListedServer:
    if not alive and state.phase not in ("stopped", "failed"):
        state = replace(state, phase="stopped", pid=0, supervisor=0, key="")
    memory, idle_s = None, None
    if alive and state.supervisor:
        memory = resident_bytes(descendants(state.supervisor))
        if state.phase == "ready":
            idle_s = max(0.0, time.time() - max(folder.mtime(folder.users), state.since))
    return ListedServer(folder, state, alive, memory, idle_s)


def stop_servers(servers: Sequence[ListedServer], seconds: float = _STOP_S) -> list[ListedServer]:
    """Stop servers, and wait until none of their processes is left.

    Args:
        servers: those that live are stopped.
        seconds: maximum wait.

    Returns:
        The servers that still live.
    """
    living = [each for each in servers if each.alive]
    for each in living:
        state = each.folder.read_state()  # the process id of a supervisor that holds its lock
        if state is not None and state.supervisor and each.folder.is_alive():
            with suppress(ProcessLookupError):
                os.kill(state.supervisor, signal.SIGTERM)
    end = time.monotonic() + seconds
    while (living := [each for each in living if each.folder.is_alive()]) and time.monotonic() < end:
        time.sleep(0.05)
    return living
