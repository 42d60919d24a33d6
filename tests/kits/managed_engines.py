"""Managed servers of tests: their tables, their processes, and a check that none is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_program import PROGRAM
from specclient_local.loading.configured_models import read_configured_models
from specclient_local.managed import readiness
from specclient_local.managed.engine_folder import ManagedState
from specclient_local.managed.engine_server import EngineServer
from specclient_local.managed.listing import list_servers, stop_servers
from specclient_local.managed.managed_models import ManagedModel, read_managed_models

from specclient.types.backend import ServerAddress

_WAIT_S = 60.0


def engine_table(*options: object, **table: Any) -> dict[str, Any]:
    """Return a ``[local.models.NAME]`` table of a server that is :mod:`engine_program`."""
    command = [sys.executable, PROGRAM, "--port", "{port}", *map(str, options)]
    return {"path": "demo", "command": command, "env": {"OWN_KEY": "{key}"}, **table}


def managed_model(table: dict[str, Any], name: str = "big") -> ManagedModel:
    """Return the model of a table."""
    settings = {"models": {name: table}}
    return read_managed_models(settings, read_configured_models(settings))[name]


def engine_server(*options: object, name: str = "big", **table: Any) -> EngineServer:
    """Return the server of a model whose program has these options."""
    return EngineServer(managed_model(engine_table(*options, **table), name))


def state_of(server: EngineServer) -> ManagedState:
    """Return the state of a server that has been started."""
    state = server.folder.read_state()
    assert state is not None
    return state


def answers(address: ServerAddress) -> bool:
    """Return whether a server answers with its key."""
    port = int(address.base_url.rpartition(":")[2].removesuffix("/v1"))
    found = readiness.get(port, "/v1/models", address.key)
    return found is not None and found.status == 200


def stop_all() -> None:
    """Stop all managed servers of this home."""
    assert not stop_servers(list_servers())


def lives(pid: int) -> bool:
    """Return whether a process lives; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)


def starts_in(file: Path) -> list[int]:
    """Return the process ids of all starts that a file lists."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []
