"""Batches over Ray Data: the records, the resumption and the budget of other batches."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_server import BatchServer, records, write_lines
from ray_clusters import StandInCluster, fleet_of
from specclient_cli.common.ray_transport import ray_client
from specclient_local.fleets.fleet import Fleet
from specclient_local.fleets.ray_cluster import FleetCluster

from specclient import AsyncOpenAI, ConfigurationError, EngineError
from specclient.batch import BatchSummary, run_file
from specclient.config import Settings


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    return StandInCluster(tmp_path, monkeypatch)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer() as server:
        yield server


@pytest.fixture
def fleet(cluster: StandInCluster, server: BatchServer) -> Iterator[Fleet]:
    """Return a fleet on a cluster elsewhere, whose replicas are the server."""
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        fleet = fleet_of(address=address, url=server.url, python=sys.executable)
        FleetCluster(fleet).deploy(print)
        yield fleet


async def run(fleet: Fleet, out: str, lines: list[Any], *, ray: bool = True, **options: Any) -> BatchSummary:
    settings = Settings.model_validate({
        "fleets": {"big": {"path": "bundled:target", "url": fleet.url}},
        "prices": {"big/main": {"input": 1000, "output": 1000}},
    })  # fmt: skip
    source = write_lines(Path("in.jsonl"), lines)
    shared = {"model": "big/main", "form": "text", **options}
    if not ray:
        async with AsyncOpenAI(config=settings, ledger="off", max_retries=0) as client:
            return await run_file(source, out, client=client, **shared)
    async with (
        ray_client(fleet, lambda: None) as (http_client, _),
        AsyncOpenAI(config=settings, ledger="off", max_retries=0, http_client=http_client) as client,
    ):
        return await run_file(source, out, client=client, **shared)


def by_id(file: str) -> list[dict[str, Any]]:
    return sorted(records(Path(file)), key=lambda record: str(record["id"]))


LINES = [
    *({"id": f"id-{i}", "prompt": f"schöne {i}"} for i in range(9)),
    {"id": "f", "prompt": "fail 400"},
    5,
]


@pytest.mark.anyio
async def test_records_are_those_of_other_batches(fleet: Fleet, server: BatchServer) -> None:
    summaries = [await run(fleet, f"{ray}.jsonl", LINES, ray=ray) for ray in (False, True)]
    assert by_id("True.jsonl") == by_id("False.jsonl")
    assert by_id("True.jsonl")[4]["output"] == "SCHÖNE 2"
    assert [(each.answered, each.failed, each.cost) for each in summaries] == [(9, 2, summaries[0].cost)] * 2
    sent = [(request.path, request.body, request.headers["user-agent"]) for request in server.requests]
    assert sorted(sent[:10]) == sorted(sent[10:])


@pytest.mark.anyio
async def test_a_batch_is_resumed(fleet: Fleet, server: BatchServer) -> None:
    await run(fleet, "out.jsonl", LINES[:5])
    Path("out.jsonl").write_text(Path("out.jsonl").read_text()[:-9])  # a kill amid a record
    server.recovered = True
    summary = await run(fleet, "out.jsonl", LINES[:-1])
    assert (summary.skipped, summary.answered) == (4, 6)
    assert max(server.request_counts.values()) == 2
    assert sorted(server.request_counts.values()) == [1] * 9 + [2]
    assert len(by_id("out.jsonl")) == 10


@pytest.mark.anyio
async def test_the_budget_holds(fleet: Fleet, server: BatchServer) -> None:
    lines = [{"prompt": f"p {i}", "max_tokens": 2} for i in range(9)]
    summary = await run(fleet, "out.jsonl", lines, max_cost="0.01", concurrency=9)
    assert summary.answered == 2
    assert "run it again with a higher limit" in (summary.stopped or "")
    assert sum(server.request_counts.values()) == 2


@pytest.mark.anyio
async def test_lines_in_flight_are_sent_at_once(fleet: Fleet, server: BatchServer) -> None:
    server.gap = 1.0
    lines = [{"prompt": f"p {i}"} for i in range(100)]
    summary = await run(fleet, "out.jsonl", lines, concurrency=100)
    assert summary.answered == 100
    assert server.max_running > 64, "all blocks of a dataset run at once"


@pytest.mark.anyio
async def test_a_program_that_ends_fails_the_calls_in_flight(fleet: Fleet, server: BatchServer) -> None:
    server.gap = 30.0
    ended = asyncio.Event()
    async with ray_client(fleet, ended.set) as (http_client, transport):
        url = f"{fleet.base_url}/completions"
        body = {"model": "d0", "prompt": "p"}
        call = asyncio.create_task(http_client.post(url, json=body, timeout=60))
        while not server.running:
            await asyncio.sleep(0.02)
        assert transport._process is not None
        os.kill(transport._process.pid, signal.SIGKILL)
        with pytest.raises(Exception, match="the process ended with status -9"):
            await call
        await asyncio.wait_for(ended.wait(), 5)
        with pytest.raises(Exception, match="Ray: the process ended"):
            await http_client.post(url, json=body)


@pytest.mark.anyio
async def test_output_that_cannot_be_read_fails_the_calls_in_flight(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "odd.py"
    program.write_text(
        "import sys, time\nprint('@{\"ready\": true}', flush=True)\n"
        "sys.stdin.readline()\nprint('@odd', flush=True)\ntime.sleep(60)\n"
    )
    cluster, ended = FleetCluster(fleet), asyncio.Event()
    command = [sys.executable, str(program)], dict(os.environ)
    monkeypatch.setattr(cluster, "invocation", lambda *_: command)
    async with ray_client(fleet, ended.set, cluster) as (http_client, _):
        with pytest.raises(Exception, match="Ray: its output cannot be read"):
            await asyncio.wait_for(http_client.post(f"{fleet.base_url}/completions", json={}), 20)
        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.anyio
async def test_errors_name_the_way_out(fleet: Fleet, cluster: StandInCluster, monkeypatch: Any) -> None:
    async def failure(of: Fleet) -> str:
        with pytest.raises((ConfigurationError, EngineError)) as found:
            async with ray_client(of, print):
                pass
        return str(found.value)

    other = fleet_of(name="other", address=fleet.address, python=sys.executable)
    assert "start it with `specclient fleet deploy other`" in await failure(other)
    assert "start it with `specclient fleet deploy big`" in await failure(fleet_of(python=sys.executable))
    if importlib.util.find_spec("ray") is None:
        assert "pip install 'specclient[ray]'" in await failure(fleet_of(address=fleet.address))
    state = json.loads(cluster.file.read_text())
    cluster.set(broken=True)
    assert "cannot be used: ray client connection timeout" in await failure(fleet)
    cluster.set(**state, broken=False)
    monkeypatch.delenv("PYTHONPATH")
    assert "has no Ray; pip install 'ray[data,serve]'" in await failure(fleet)
