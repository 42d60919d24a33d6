"""Managed servers: started by the first use, shared, restarted, stopped, and never orphaned."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_program import LIFETIME_S
from managed_engines import answers, engine_server, lives, starts_in, state_of, wait_until
from specclient_local.managed.listing import list_servers, stop_servers

from specclient.errors import EngineError

pytestmark = pytest.mark.anyio

#: A program that uses a server like any other: it acquires it, tells its address, and waits for its input.
USER = """
import asyncio, json, sys
sys.path[:0] = json.loads(sys.argv[1])
from managed_engines import engine_server
server = engine_server(*sys.argv[2:])
address = asyncio.run(server.acquire())
print(json.dumps([address.base_url, address.model]), flush=True)
sys.stdin.readline()
server.release()
"""


def _user(*options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USER, json.dumps(sys.path), *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(user: subprocess.Popen[str]) -> list[str]:
    assert user.stdout is not None
    told: list[str] = json.loads(user.stdout.readline())
    return told


async def test_the_first_use_starts_it_and_others_share_it(tmp_path: Path) -> None:
    server, other = (engine_server("--starts", tmp_path / "starts") for _ in range(2))
    assert server.folder.read_state() is None
    address = await server.acquire()
    again = await other.acquire()
    assert answers(address)
    assert (address.model, again) == ("own", address)
    user = _user("--starts", tmp_path / "starts")
    assert _told(user) == [address.base_url, "own"]
    user.communicate("\n")
    assert len(starts_in(tmp_path / "starts")) == 1
    assert state_of(server).keyed is True
    server.release()
    other.release()


async def test_programs_that_start_it_at_the_same_time_start_one(tmp_path: Path) -> None:
    options = ("--starts", tmp_path / "starts", "--delay", 0.5)
    users = [_user(*options) for _ in range(3)]
    told = [_told(user) for user in users]
    assert told[0] == told[1] == told[2]
    assert len(starts_in(tmp_path / "starts")) == 1
    for user in users:
        user.communicate("\n")


async def test_many_calls_of_a_program_start_one(tmp_path: Path) -> None:
    server = engine_server("--starts", tmp_path / "starts")
    found = await asyncio.gather(*(server.acquire() for _ in range(50)))
    assert len(set(found)) == len(starts_in(tmp_path / "starts")) == 1
    for _ in found:
        server.release()


async def test_a_killed_server_is_started_again_by_the_next_call_at_the_same_port(tmp_path: Path) -> None:
    server = engine_server("--starts", tmp_path / "starts")
    first = await server.acquire()
    server.release()
    killed = state_of(server).pid
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not lives(killed), "it has ended")
    second = await server.acquire()
    server.release()
    assert answers(second)
    assert len(starts_in(tmp_path / "starts")) == 2
    assert first.base_url == second.base_url
    assert first.key != second.key


async def test_failures_in_a_row_are_told_with_the_log_and_back_off(tmp_path: Path) -> None:
    server = engine_server("--starts", tmp_path / "starts", "--fail", "ValueError: no such model")
    for count in range(1, 5):  # waits of 1, 2 and 4 seconds are waited for
        with pytest.raises(EngineError) as caught:
            await server.acquire()
        assert "ValueError: no such model" in str(caught.value)
        assert "ended with status 3" in str(caught.value)
        assert str(server.folder.log) in str(caught.value)
        assert (f"failed {count} times in a row" in str(caught.value)) == (count > 1)
    with pytest.raises(EngineError, match=r"failed 4 times in a row.*A call in \d s starts it again"):
        await server.acquire()
    assert len(starts_in(tmp_path / "starts")) == 4, "the last call did not start it"
    with pytest.raises(EngineError, match="no such model"):
        server.start(lambda _: None)  # a command does not wait
    assert state_of(server).failures == 1


async def test_a_server_that_failed_once_starts_at_the_next_call(tmp_path: Path) -> None:
    server = engine_server("--fail-once", tmp_path / "failed")
    with pytest.raises(EngineError, match="RuntimeError: only at first"):
        await server.acquire()
    assert answers(await server.acquire())
    server.release()


async def test_an_idle_server_is_stopped_but_not_during_a_call(tmp_path: Path) -> None:
    server = engine_server(keep_alive=0.5)
    address = await server.acquire()
    pid = state_of(server).pid
    time.sleep(1.5)
    assert answers(address), "a call is in progress"
    server.release()
    wait_until(lambda: not server.folder.is_alive(), "it is stopped")
    assert not lives(pid)
    assert (state_of(server).phase, state_of(server).key) == ("stopped", "")
    assert answers(await server.acquire()), "a later call starts it"
    server.release()


async def test_a_program_that_is_killed_during_a_call_does_not_keep_it(tmp_path: Path) -> None:
    options = ("--children", tmp_path / "children")
    code = USER.replace("engine_server(*sys.argv[2:])", "engine_server(*sys.argv[2:], keep_alive=0.5)")
    user = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(sys.path), *map(str, options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _told(user)
    [listed] = list_servers("big")
    processes = [listed.state.supervisor, listed.state.pid]
    processes += map(int, (tmp_path / "children").read_text().split())
    user.kill()
    user.communicate()
    wait_until(lambda: not any(map(lives, processes)), "all processes have ended")
    assert LIFETIME_S > 60


@pytest.mark.parametrize("victim", ["supervisor", "guard", "server"])
async def test_no_process_outlives_the_kill_of_any_one(tmp_path: Path, victim: str) -> None:
    deaf = ["--deaf"] if victim == "supervisor" else []  # the others end it with SIGKILL
    server = engine_server("--children", tmp_path / "children", *deaf, keep_alive=0)
    await server.acquire()
    server.release()
    state = state_of(server)
    guard = int(Path(f"/proc/{state.pid}/stat").read_text().rpartition(")")[2].split()[1])
    children = list(map(int, (tmp_path / "children").read_text().split()))
    processes = [state.supervisor, guard, state.pid, *children]
    assert all(map(lives, processes))
    killed = {"supervisor": state.supervisor, "guard": guard, "server": state.pid}[victim]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not any(map(lives, processes)), "all processes have ended")
    assert not server.folder.is_alive()
    if not deaf:
        assert answers(await server.acquire()), "the next call starts it"
        server.release()


async def test_the_kernel_ends_a_server_whose_supervisor_and_guard_are_killed_together() -> None:
    server = engine_server("--deaf", keep_alive=0)
    await server.acquire()
    server.release()
    state = state_of(server)
    guard = int(Path(f"/proc/{state.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGSTOP)  # so that it does not notice the supervisor's end
    os.kill(state.supervisor, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: not any(map(lives, (state.supervisor, guard, state.pid))), "all have ended")


async def test_stop_ends_a_server_that_ignores_sigterm(tmp_path: Path, monkeypatch) -> None:
    server = engine_server("--children", tmp_path / "children", "--deaf")
    await server.acquire()
    server.release()
    processes = [state_of(server).pid, *map(int, (tmp_path / "children").read_text().split())]
    assert stop_servers(list_servers("big")) == []
    assert not any(map(lives, processes))
    assert [each.state.phase for each in list_servers("big")] == ["stopped"]


async def test_a_port_that_another_program_has_is_told(tmp_path: Path) -> None:
    """A command with a port of its own, at which another server answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        table = engine_server().model.command
        command = [str(port) if word == "{port}" else word for word in table]
        server = engine_server(command=command)
        with pytest.raises(EngineError, match=r"[Aa]ddress already in use.*use \{port\} in command"):
            await server.acquire()


async def test_a_start_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    server = engine_server("--delay", LIFETIME_S, "--starts", tmp_path / "starts", start_s=1)
    with pytest.raises(EngineError, match="did not answer within start_s = 1 s"):
        await server.acquire()
    assert not any(map(lives, starts_in(tmp_path / "starts")))


async def test_a_caller_that_is_cancelled_leaves_the_start_to_others(tmp_path: Path) -> None:
    server = engine_server("--delay", 1, "--starts", tmp_path / "starts")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await server.acquire()
    assert answers(await server.acquire())
    assert len(starts_in(tmp_path / "starts")) == 1
    server.release()


async def test_the_name_of_one_of_several_models_must_be_configured() -> None:
    several = engine_server("--models", "a", "b")
    with pytest.raises(EngineError, match="its models are a, b; name one of them in served_name"):
        await several.acquire()
    named = engine_server("--models", "a", "b", served_name="b")
    assert (await named.acquire()).model == "b"
    named.release()


async def test_a_forked_child_leaves_the_lock_of_its_parent(tmp_path: Path) -> None:
    server = engine_server(keep_alive=0.5)
    address = await server.acquire()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(1.2)
    assert answers(address), "the parent's call is in progress"
    server.release()
