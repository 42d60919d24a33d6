"""The files of managed servers: state, locks, keys, and folders that are left over."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from managed_engines import answers, engine_server, state_of, wait_until
from specclient_local.managed import engine_server as module
from specclient_local.managed.engine_folder import EngineFolder, ManagedState
from specclient_local.managed.listing import list_servers, stop_servers

from specclient.errors import ConfigurationError


@pytest.mark.anyio
async def test_files_of_an_earlier_boot_do_not_count(tmp_path: Path) -> None:
    """The state of a machine that was switched off: a ready server, whose ids other processes have now."""
    server = engine_server()
    server.folder.make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        mine = os.getpid()
        stale = ManagedState(
            name="big",
            engine="openai",
            title="x",
            phase="ready",
            supervisor=mine,
            pid=mine,
            port=port,
            key="old",
        )
        server.folder.write_state(stale)
        for file in (server.folder.alive, server.folder.users, server.folder.start):
            file.touch()
        [listed] = list_servers("big")
        assert (listed.alive, listed.state.phase) == (False, "stopped")
        assert stop_servers([listed]) == []
        address = await server.acquire()
        assert address.key != "old"
        assert address.base_url != stale.base_url, "its port is another program's now"
        assert answers(address)
        server.release()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": 5}', '{"phase": "ready", "pid": "x"}'])
@pytest.mark.anyio
async def test_a_damaged_state_file_is_replaced(content: str) -> None:
    server = engine_server()
    server.folder.make()
    server.folder.state_file.write_text(content)
    assert list_servers() == []
    assert answers(await server.acquire())
    server.release()


@pytest.mark.anyio
async def test_the_key_is_in_no_file_but_the_state_and_in_no_error(tmp_path: Path) -> None:
    server = engine_server("--models", "a", "b", served_name="b")
    address = await server.acquire()
    server.release()
    assert address.key not in repr(address)
    assert address.key not in repr(state_of(server))
    assert server.folder.state_file.stat().st_mode & 0o777 == 0o600
    assert server.folder.path.stat().st_mode & 0o777 == 0o700
    assert "api_key='[key]'" in server.folder.log.read_text()
    for file in server.folder.path.iterdir():
        assert (address.key in file.read_text()) == (file == server.folder.state_file)
    os.kill(state_of(server).pid, signal.SIGKILL)
    wait_until(lambda: not server.folder.is_alive(), "its end is noted")
    assert address.key not in server.folder.state_file.read_text()


@pytest.mark.anyio
async def test_folders_of_servers_that_ended_long_ago_are_removed(monkeypatch) -> None:
    old, running = engine_server(name="old"), engine_server(name="running")
    for server in (old, running):
        await server.acquire()
        server.release()
    stop_servers(list_servers("old"))
    monkeypatch.setattr(module, "_KEPT_S", 0.0)
    module.remove_old_folders()
    assert [each.state.name for each in list_servers()] == ["running"]
    assert not old.folder.path.exists()


@pytest.mark.anyio
async def test_a_lock_file_that_was_removed_with_its_folder_is_opened_again(monkeypatch) -> None:
    server = engine_server(keep_alive=0.5)
    await server.acquire()
    server.release()
    stop_servers(list_servers())
    monkeypatch.setattr(module, "_KEPT_S", 0.0)
    module.remove_old_folders()
    assert not server.folder.path.exists()
    address = await server.acquire()
    time.sleep(1.2)
    assert answers(address), "the call in progress keeps it"
    server.release()


def test_equal_models_share_a_folder_and_changed_ones_do_not() -> None:
    names = {
        engine_server("--pause", pause, keep_alive=keep_alive).folder.path.name
        for pause, keep_alive in ((0, 5), (0, 6), (1, 5))
    }
    assert len(names) == 2, "how long it is kept does not make it another server"
    assert all(name.startswith("big-") for name in names)
    odd = engine_server(name="a/../b c").folder
    assert odd.path.name.startswith("a_.._b_c-")


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"cannot use .*file/x.*XDG_DATA_HOME"):
        EngineFolder(tmp_path / "file" / "x").make()
    assert replace(ManagedState(name="n", engine="e", title="t", phase="ready"), port=5).base_url.endswith(
        ":5/v1"
    )
