"""The Grafana dashboard: its queries are valid, and name only metrics and labels that a server exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateway_server import Served, upstream_settings
from loopback_server import OpenAIServer
from paths import ROOT
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

FILE = ROOT / "deploy" / "grafana" / "dashboards" / "specclient.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAME = re.compile(r"specclient:\w+")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
#: Labels that Prometheus adds.
ADDED = {"instance", "job"}


@pytest.fixture(scope="module")
def exported() -> Iterator[list[Metric]]:
    """Return the metrics of a server after a call, and a request that it refuses."""
    with OpenAIServer() as upstream, Served(upstream_settings(upstream)) as served:
        body = {"model": "mine/m-large", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
        with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            body["model"] = "nowhere/m"
            assert client.post("/v1/chat/completions", json=body).status_code == 404
            text = client.get("/metrics").text
        yield list(text_string_to_metric_families(text))


def _names(metrics: list[Metric]) -> set[str]:
    # The parser removes _total from the name of a counter.
    return {family.name + suffix for family in metrics for suffix in SUFFIXES[family.type]}


def test_queries_name_exported_metrics(exported: list[Metric]) -> None:
    for query in QUERIES:
        assert NAME.search(query)
        assert set(NAME.findall(query)) <= _names(exported)


def test_queries_use_exported_labels(exported: list[Metric]) -> None:
    known = {
        name: set().union(*(sample.labels for sample in family.samples))
        for family in exported
        for name in (family.name + suffix for suffix in SUFFIXES[family.type])
        if family.samples
    }
    used = 0
    for query in QUERIES:
        labels = set(re.findall(r"(\w+)=", query))
        labels |= {each for found in re.findall(r"by \(([^)]*)\)", query) for each in found.split(", ")}
        for name in NAME.findall(query):
            if name in known:
                assert labels - ADDED <= known[name], query
                used += 1
    assert used > 20


def test_queries_are_valid() -> None:
    promql = pytest.importorskip("promql_parser", reason="the extra `deploy` is not installed")
    for query in QUERIES:
        promql.parse(re.sub(r"\$__\w+", "5m", query).replace("$model", ".*"))
    with pytest.raises(ValueError, match="unknown function"):
        promql.parse("median(specclient:calls_total)")


def test_panels_are_complete() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "model"}
    assert NAME.findall(variables["model"]["definition"]) == ["specclient:calls_total"]
