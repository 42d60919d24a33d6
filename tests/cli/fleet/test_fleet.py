"""``specclient fleet``: plans, files, and a fleet on a cluster of the stand-in for Ray."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from pathlib import Path

import pytest
import yaml
from batch_server import BatchServer, records, write_lines
from paths import ROOT
from ray_clusters import StandInCluster

TABLE = """
[fleets.big]
path = "bundled:target"
draft = "bundled:draft"
context = 512
memory = "2GiB"
device_cost_per_hour = 0.5
start_s = 30
{more}
[fleets.big.pools.d0]
draft_length = 0
[fleets.big.pools.d3]
draft_length = 3
replicas = [1, 2]
"""


@pytest.fixture
def configure(in_empty_folder: Path):
    def write(more: str = "", old: str = "", new: str = "") -> None:
        (in_empty_folder / "specclient.toml").write_text(TABLE.format(more=more).replace(old, new))

    write()
    return write


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    return StandInCluster(tmp_path, monkeypatch)


def test_a_plan_has_memory_and_dollars(run, configure) -> None:
    code, out, _ = run("fleet", "plan", "big")
    lines = out.splitlines()
    assert code == 0
    assert lines[1].split() == ["d0", "0", "1", "1", "19.5", "MiB", "416", "0.50"]
    assert lines[2].split()[:4] == ["d3", "3", "1–2", "1–2"]
    assert "$1.00–$1.50 an hour; name for calls: big/auto" in lines[3]
    plan = json.loads(run("fleet", "plan", "big", "--json")[1])
    assert plan["dollars_per_hour"] == [1.0, 1.5]
    assert plan["pools"][1]["engine_arguments"]["speculative_config"]["num_speculative_tokens"] == 3


def test_a_plan_that_does_not_fit_fails(run, configure) -> None:
    configure(old="2GiB", new="20MiB")
    for more in ([], ["--json"], ["--render", "serve"]):
        code, out, error = run("fleet", "plan", "big", *more)
        assert code == 3
        assert "pool 'd0' cannot hold the model" in error
        assert "import_path" not in out


def test_files_are_printed(run, configure) -> None:
    for kind, count in (("serve", 1), ("compose", 1), ("kubernetes", 11)):
        code, out, error = run("fleet", "plan", "big", "--render", kind)
        assert (code, error) == (0, "")
        assert len(list(yaml.safe_load_all(out))) == count
    code, _, error = run("fleet", "plan", "big", "--render", "kuberay")
    assert code == 3
    assert "set image" in error


def test_a_fleet_is_deployed_scaled_updated_and_stopped(run, configure, cluster: StandInCluster) -> None:
    assert run("fleet", "status", "big")[1].startswith(
        "fleet big is not running; `specclient fleet deploy big`"
    )
    code, out, said = run("fleet", "deploy", "big")
    assert code == 0
    assert "starting a Ray cluster on this machine" in said
    rows = [line.split() for line in out.splitlines()]
    assert rows[1] == ["big", "d0", "healthy", "1", "running", "–"]
    assert rows[-1] == ["big/auto", "is", "served", "at", "http://127.0.0.1:8000/big/v1"]
    try:
        assert run("fleet", "deploy", "big")[0] == 1
        assert run("fleet", "scale", "big", "d3=2")[0] == 0
        assert run("fleet", "scale", "big", "d0=1-3")[0] == 0
        models = cluster.applications["big"]["arguments"]["llm_configs"]
        assert [model["deployment_config"].get("num_replicas") for model in models] == [None, 2], "d3 stays"
        assert models[0]["deployment_config"]["autoscaling_config"]["max_replicas"] == 3
        assert run("fleet", "update", "big")[0] == 0
        models = cluster.applications["big"]["arguments"]["llm_configs"]
        assert models[0]["deployment_config"]["num_replicas"] == 1, "as configured"
        status = json.loads(run("fleet", "status", "big", "--json")[1])
        assert status["big"]["status"] == "RUNNING"
        assert "application" not in status["big"], "which may hold keys"
        assert run("fleet", "logs", "big")[1] == "no replica of big has a log on the cluster\n"
    finally:
        assert run("fleet", "stop", "big")[1] == "fleet big has been stopped\n"
    assert run("fleet", "stop", "big")[1] == "fleet big was not running\n"


def test_the_load_is_that_of_the_nodes_pages(run, configure, cluster: StandInCluster, openai_server) -> None:
    from loopback_server import reply

    page = (ROOT / "tests" / "data" / "fleets" / "ray_metrics.txt").read_text()
    openai_server.script(reply(200, page.replace(" 0.0", " 5.0").encode()))
    port = int(openai_server.url.rpartition(":")[2])
    node = {"Alive": True, "NodeID": "1", "Resources": {"CPU": 4.0}, "NodeManagerAddress": "127.0.0.1"}
    cluster.set(nodes=[{**node, "MetricsExportPort": port}])
    with socket.create_server(("127.0.0.1", 0)) as server:
        configure(f'address = "127.0.0.1:{server.getsockname()[1]}"')
        assert run("fleet", "deploy", "big", "--json")[0] == 0
        out = run("fleet", "status", "big", "--all")[1]
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["5", "5"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("plan", "small"), 3, "no fleet 'small' under [fleets.NAME] in specclient.toml; configured are big"),
        (("scale", "big", "d9=1"), 3, "fleet 'big' has no pool 'd9'; its pools are d0, d3"),
        (("scale", "big", "d0=0"), 2, "'d0=0' is not a size; write POOL=N"),
        (("scale", "big", "d0=3-2"), 2, "'d0=3-2' is not a size"),
        (("update", "big"), 3, "no local cluster runs; start it with `specclient fleet deploy big`"),
    ],
)
def test_errors_name_the_way_out(run, configure, words: tuple[str, ...], code: int, message: str) -> None:
    found, _, error = run("fleet", *words)
    assert found == code
    assert message in " ".join(error.split())


def test_a_batch_on_ray_uses_the_fleet(run, configure, cluster: StandInCluster) -> None:
    with BatchServer() as server:
        table = f'url = "{server.url}"\npython = "{sys.executable}"'
        configure(table)
        write_lines(Path("in.jsonl"), [{"prompt": f"p {i}"} for i in range(20)])
        batch = ("batch", "in.jsonl", "out.jsonl", "--on", "ray", "-m", "big/d0")
        code, _, error = run(*batch)
        assert code == 3
        assert "start it with `specclient fleet deploy big`" in error
        assert run("fleet", "deploy", "big")[0] == 0
        try:
            code, _, error = run(*batch)
            assert code == 0
            assert "20 answered · 0 failed · unpriced" in error
            assert run(*batch)[0] == 0
            assert len(records(Path("out.jsonl"))) == sum(server.request_counts.values()) == 20
        finally:
            run("fleet", "stop", "big")
    if importlib.util.find_spec("ray") is None:
        configure()
        code, _, error = run(*batch)
        assert code == 3
        assert "pip install 'specclient[ray]'" in error
