"""The load of pools on the metrics page of a node, as Ray 2.60 prints it."""

from __future__ import annotations

from paths import ROOT

from specclient.telemetry.ray_metrics import ray_loads

PAGE = (ROOT / "tests" / "data" / "fleets" / "ray_metrics.txt").read_text()


def test_pools_are_found_on_a_recorded_page() -> None:
    assert ray_loads(PAGE) == {"big": {"d0": 0.0, "d3": 0.0}}
    assert "OpenAiIngress" in PAGE


def test_replicas_of_a_pool_are_summed() -> None:
    [line] = [
        line for line in PAGE.splitlines() if 'deployment="LLMServer:d0"' in line and "processing" in line
    ]
    busy = line.rpartition(" ")[0]
    assert ray_loads(f"{PAGE}\n{busy} 3.0\n{busy} 4\n")["big"] == {"d0": 7.0, "d3": 0.0}


def test_malformed_lines_are_left_out() -> None:
    name = "ray_serve_replica_processing_queries"
    labels = 'application="a",deployment="LLMServer:b"'
    for line in (
        f"{name}{{{labels}}} NaN",
        f"{name}{{{labels}}} -1",
        f"{name}{{}} 1",
        f"{name}{{{labels}}} x",
        name,
    ):
        assert ray_loads(line) == {}
