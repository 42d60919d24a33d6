"""Commands on a cluster: refused before anything starts, taken back when they fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import StandInCluster, fleet_of
from specclient_local.fleets.local_cluster import LocalCluster
from specclient_local.fleets.ray_cluster import FleetCluster
from specclient_local.managed.process_tree import descendants, is_running

from specclient import ConfigurationError, EngineError


@pytest.fixture
def address() -> Iterator[str]:
    """Return the address of a cluster elsewhere, which accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def lines() -> tuple[list[str], Any]:
    found: list[str] = []
    return found, found.append


def assert_ended(pids: list[int]) -> None:
    end = time.monotonic() + 5
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(is_running, pids))


def test_a_local_cluster_lives_as_long_as_its_fleets(cluster: StandInCluster, local: LocalCluster) -> None:
    fleet = FleetCluster(fleet_of(), local)
    assert fleet.status() == {"fleets": {}, "metrics": []}
    assert fleet.stop() is False
    said, say = lines()
    found = fleet.deploy(say)
    assert "starting a Ray cluster" in said[0]
    assert found["fleets"]["big"]["status"] == "RUNNING"
    running = local.running()
    assert running is not None
    other = FleetCluster(fleet_of(name="small"), local)
    other.deploy(say)
    assert local.running() == running
    assert fleet.status()["fleets"].keys() == {"big"}
    assert fleet.status(every=True)["fleets"].keys() == {"big", "small"}
    assert fleet.status()["metrics"] == ["http://127.0.0.1:9/metrics"]
    assert fleet.stop() is True
    assert local.running() == running
    assert other.stop() is True
    assert local.running() is None
    assert not is_running(running.pid)


def test_no_process_of_a_local_cluster_is_left(cluster: StandInCluster, local: LocalCluster) -> None:
    cluster.set(stubborn=True)
    running = local.start(sys.executable, print)
    while not (below := descendants(running.pid)):
        time.sleep(0.02)
    assert local.stop() is True
    assert_ended([running.pid, *below])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of a session are found in /proc")
def test_what_a_killed_cluster_leaves_is_ended(cluster: StandInCluster, local: LocalCluster) -> None:
    cluster.set(stubborn=True)
    fleet = FleetCluster(fleet_of(), local)
    for end in (fleet.stop, lambda: local.start(sys.executable, print)):
        fleet.deploy(print)
        running = local.running()
        assert running is not None
        while not (below := descendants(running.pid)):
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGKILL)
        while local.running() is not None:
            time.sleep(0.02)
        assert all(map(is_running, below))
        cluster.set(applications={}, stored={}, stubborn=False)
        assert end()
        assert_ended(below)
        cluster.set(stubborn=True)


def test_a_fleet_that_does_not_get_ready_leaves_nothing(cluster: StandInCluster, local: LocalCluster) -> None:
    for outcome, message in (("failed", "failed to start 3 times"), ("never", "not ready within 1 s")):
        cluster.set(outcome=[outcome])
        with pytest.raises(EngineError, match=message):
            FleetCluster(fleet_of(start_s=1), local).deploy(print)
        assert cluster.applications == {}
        assert local.running() is None


def test_errors_have_the_last_lines_of_the_replicas_logs(cluster: StandInCluster, address: str) -> None:
    log = cluster.session / "logs" / "serve" / "replica_big_LLMServer_d0_abc.log"
    log.write_text("INFO starting\nERROR ValueError: no room for the KV cache\n")
    cluster.set(outcome=["failed"])
    with pytest.raises(EngineError, match="no room for the KV cache"):
        FleetCluster(fleet_of(address=address)).deploy(print)
    found = FleetCluster(fleet_of(address=address)).logs(1)
    [(file, text)] = found.items()
    assert file.endswith(log.name)
    assert text == ["ERROR ValueError: no room for the KV cache"]


@pytest.mark.parametrize(
    ("state", "values", "message"),
    [
        ({"vllm": None}, {}, "has no vLLM; install it on all nodes"),
        ({"busy": True}, {}, "the cluster ran no task within"),
        ({"broken": True}, {}, "cannot be used: ray client connection timeout"),
        ({}, {"cpus": 8}, "no node of the cluster has 8 CPU"),
        ({}, {"cpus": 3}, "the fleet needs 6 CPU and the cluster has 4"),
        ({}, {"accelerator": "H100"}, "no node of the cluster has 1 CPU, 1 GPU"),
    ],
)
def test_a_cluster_that_cannot_hold_the_fleet_is_told(
    cluster: StandInCluster, address: str, state: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    cluster.set(**state)
    with pytest.raises(EngineError, match=message):
        FleetCluster(fleet_of(address=address, **values)).deploy(print)
    cluster.set(broken=False)
    assert cluster.applications == {}
    assert json.loads(cluster.file.read_text())["stored"] == {}


def test_two_fleets_of_one_name_are_refused(cluster: StandInCluster, address: str) -> None:
    fleet = FleetCluster(fleet_of(address=address))
    fleet.deploy(print)
    with pytest.raises(
        EngineError, match="a fleet of the name 'big' already; use `specclient fleet update big`"
    ):
        fleet.deploy(print)
    assert cluster.applications.keys() == {"big"}
    cluster.set(stored={})
    with pytest.raises(EngineError, match="an application of the name 'big'"):
        fleet.deploy(print)
    with pytest.raises(EngineError, match="specclient did not deploy; --force stops it"):
        fleet.stop()
    assert cluster.applications.keys() == {"big"}
    assert fleet.stop(force=True) is True
    assert cluster.applications == {}


def test_a_failed_update_brings_the_former_fleet_back(cluster: StandInCluster, address: str) -> None:
    with pytest.raises(EngineError, match="is not on this cluster"):
        FleetCluster(fleet_of(address=address)).update(print)
    FleetCluster(fleet_of(address=address)).deploy(print)
    former = cluster.applications["big"]["arguments"]
    cluster.set(outcome=["failed"])
    changed = fleet_of(address=address, pools={"d7": {"draft_length": 7}})
    with pytest.raises(EngineError, match="failed to start"):
        FleetCluster(changed).update(print)
    assert cluster.applications["big"]["arguments"] == former
    found = FleetCluster(changed).update(print)
    assert [*found["fleets"]["big"]["deployments"]] == ["LLMServer:d7", "OpenAiIngress"]
    application = found["fleets"]["big"]["application"]
    assert FleetCluster(changed).recorded_sizes(application) == {"d7": (1, 1)}


def test_replicas_stay_where_only_numbers_change(cluster: StandInCluster, address: str) -> None:
    """Ray Serve keeps the replicas of a deployment whose version stays."""
    fleet = fleet_of(address=address)
    FleetCluster(fleet).deploy(print)
    first = cluster.applications["big"]["versions"]
    assert len(set(first.values())) == 3
    assert all(first.values())
    FleetCluster(fleet.resized({"d3": (2, 4)})).update(print)
    assert cluster.applications["big"]["versions"] == first
    changed = fleet_of(address=address, pools={"d0": {"draft_length": 0}, "d3": {"draft_length": 4}})
    FleetCluster(changed).update(print)
    last = cluster.applications["big"]["versions"]
    assert [name for name in first if last[name] != first[name]] == ["LLMServer:d3"]


def test_a_cluster_that_is_away_is_told_at_once(cluster: StandInCluster) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{closed.getsockname()[1]}"
    fleet = FleetCluster(fleet_of(address=address))
    begun = time.monotonic()
    for command in (lambda: fleet.deploy(print), fleet.status, fleet.stop, lambda: fleet.logs(5)):
        with pytest.raises(ConfigurationError, match="is away"):
            command()
    assert time.monotonic() - begun < 10


def test_the_address_of_a_dashboard_is_refused(cluster: StandInCluster) -> None:
    with pytest.raises(ConfigurationError, match="'http://head:8265'; write ray://HOST:10001"):
        FleetCluster(fleet_of(address="http://head:8265")).status()


def test_an_interpreter_without_ray_is_told(cluster: StandInCluster, address: str, monkeypatch: Any) -> None:
    monkeypatch.delenv("PYTHONPATH")
    with pytest.raises(EngineError, match="has no Ray; pip install 'ray\\[serve\\]' there, or set python"):
        FleetCluster(fleet_of(address=address, python=sys.executable)).deploy(print)
    with pytest.raises(ConfigurationError, match="python is '/nowhere/python', which is not a program"):
        FleetCluster(fleet_of(address=address, python="/nowhere/python")).status()


def test_a_cluster_that_does_not_start_is_told(cluster: StandInCluster, local: LocalCluster) -> None:
    cluster.set(start="fails")
    with pytest.raises(EngineError, match="cannot bind the port of the GCS server"):
        FleetCluster(fleet_of(), local).deploy(print)
    assert local.running() is None


def test_an_interpreter_without_ray_is_named(local: LocalCluster, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # no installed packages
    python.chmod(0o755)
    said: list[str] = []
    with pytest.raises(EngineError, match=r"python has no Ray; name the interpreter of an environment"):
        local.start(str(python), said.append)
    assert local.running() is None
    assert said == [], "nothing has been started"


def test_a_program_that_is_no_interpreter_is_named(local: LocalCluster, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no such library' >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(EngineError, match="python cannot be used: no such library"):
        local.start(str(program), print)
    program.write_bytes(b"\x00\x01")
    with pytest.raises(EngineError, match="python cannot be run: Exec format error"):
        local.start(str(program), print)


def test_stop_works_while_another_program_deploys(cluster: StandInCluster, local: LocalCluster) -> None:
    cluster.set(outcome=["never"])
    fleet = FleetCluster(fleet_of(start_s=60), local)
    failures: list[BaseException] = []

    def deploy() -> None:
        try:
            fleet.deploy(print)
        except EngineError as error:
            failures.append(error)

    thread = threading.Thread(target=deploy)
    thread.start()
    while "big" not in cluster.applications:
        time.sleep(0.05)
    assert fleet.stop() is True
    assert local.running() is None
    thread.join(60)
    assert "is gone" in str(failures[0])


def test_a_local_cluster_that_does_not_answer_is_ended_by_force(
    cluster: StandInCluster, local: LocalCluster
) -> None:
    fleet = FleetCluster(fleet_of(), local)
    fleet.deploy(print)
    cluster.set(broken=True)
    with pytest.raises(EngineError, match="cannot be used"):
        fleet.stop()
    running = local.running()
    assert running is not None
    assert fleet.stop(force=True) is True
    assert not is_running(running.pid)
