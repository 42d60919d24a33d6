"""The Helm chart, rendered by Helm's own library: valid, confined, with the configuration of its values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

from specclient.config import Settings, load
from specclient.version import VERSION

helm = pytest.importorskip("helm_python", reason="the extra `deploy` is not installed")

FOLDER = ROOT / "deploy" / "helm" / "specclient"
EXAMPLE = yaml.safe_load((FOLDER / "ci" / "example-values.yaml").read_text())
#: The least that a release needs.
LEAST = {"config": {"ledger": "off"}, "secret": {"existing": "keys"}}
PORT = 8400


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(FOLDER) as loaded:
        yield loaded


def _render(chart: Any, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects by their kind."""
    rendered = chart.render(values, name="demo", namespace="prod")
    documents = [yaml.safe_load(text) for path, text in rendered.items() if path.endswith(".yaml")]
    return {document["kind"]: document for document in documents if document}


def _configuration(chart: Any, values: dict[str, Any]) -> str:
    text: str = _render(chart, values)["ConfigMap"]["data"]["specclient.toml"]
    return text


def _pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return pod


def test_helm_lint_has_no_warning() -> None:
    report = helm.lint(FOLDER, EXAMPLE, strict=True)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


def test_the_chart_has_the_packages_version(chart: Any) -> None:
    assert chart.version == chart.metadata["appVersion"] == VERSION


def test_the_configuration_is_read_by_the_gateway(chart: Any, tmp_path: Path) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(_configuration(chart, EXAMPLE))
    settings = load(file, env={})
    assert settings == Settings.model_validate({**EXAMPLE["config"], "source": file})
    assert settings.server.grace_s == 60


def test_values_become_the_same_toml(chart: Any) -> None:
    """Names with any characters, nested tables, lists; whole numbers stay integers, as engines need."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    whole = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    more = {"text": 'quoted "x"\nand = 3.0', "sizes": [2, 1, 1.5], "on": True, "big": 2**40, "nothing": []}
    whole["local"]["models"]["big"] |= more
    assert len(whole) > 8
    found = tomllib.loads(_configuration(chart, {**LEAST, "config": {**whole, "ledger": "off"}}))
    assert json.dumps(found, sort_keys=True) == json.dumps({**whole, "ledger": "off"}, sort_keys=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "secret.values.SPECCLIENT_SERVER_KEY"),
        ({"secret": {"values": {"SPECCLIENT_SERVER_KEY": "k"}}}, "no ledger is set"),
        ({**LEAST, "configSecret": "mine"}, "both set"),
        ({**LEAST, "config": {"ledger": "postgresql://me:pw@host/db"}}, "config.ledger holds a password"),
        (
            {**LEAST, "config": {"ledger": "postgresql://host/db?password=x"}},
            "config.ledger holds a password",
        ),
        ({**LEAST, "config": {"ledger": "off", "providers": {"a": {"api_key": "k"}}}}, "providers.a.api_key"),
        ({**LEAST, "config": {"ledger": "off", "server": {"redis_url": "redis://h"}}}, "redis_url"),
        ({**LEAST, "replica": 1}, "replica"),
        ({**LEAST, "replicas": "many"}, "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(chart: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(helm.HelmError, match=words) as raised:
        _render(chart, values)
    assert "pw" not in str(raised.value)


def test_pods_are_confined(chart: Any) -> None:
    pod = _pod(_render(chart, LEAST))
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    user = pod["securityContext"]["runAsUser"]
    assert f"\nUSER {user}:{pod['securityContext']['runAsGroup']}\n" in (ROOT / "Dockerfile").read_text()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/tmp", "/var/lib/specclient"}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_ports_and_probes_are_those_of_the_server(chart: Any) -> None:
    objects = _render(chart, EXAMPLE)
    (container,) = _pod(objects)["containers"]
    assert container["args"] == ["serve", "--host", "0.0.0.0", "--port", str(PORT), *EXAMPLE["args"]]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    for kind in ("startup", "readiness", "liveness"):
        assert container[f"{kind}Probe"]["httpGet"] == {"path": "/health", "port": "http"}
    (port,) = objects["Service"]["spec"]["ports"]
    assert port == {"name": "http", "port": PORT, "targetPort": "http"}
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    credentials = {"name": "specclient-keys", "key": "SPECCLIENT_SERVER_KEY"}
    assert endpoint["authorization"] == {"credentials": credentials}


def test_pods_have_time_to_stop(chart: Any) -> None:
    assert _pod(_render(chart, EXAMPLE))["terminationGracePeriodSeconds"] == 5 + 60 + 10
    pod = _pod(_render(chart, {**LEAST, "drainSeconds": 0}))
    assert pod["terminationGracePeriodSeconds"] == 30 + 10
    assert "lifecycle" not in pod["containers"][0]


def test_selectors_find_the_pods(chart: Any) -> None:
    objects = _render(chart, {**EXAMPLE, "podLabels": {"team": "web"}})
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert ("team", "web") in labels
    for kind in ("Deployment", "PodDisruptionBudget", "ServiceMonitor"):
        assert objects[kind]["spec"]["selector"]["matchLabels"].items() <= labels
    assert objects["Service"]["spec"]["selector"].items() <= labels
    target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == objects["Deployment"]["metadata"]["name"] == "demo-specclient"
    assert "replicas" not in objects["Deployment"]["spec"]


def test_optional_objects_can_be_left_out(chart: Any) -> None:
    objects = _render(chart, {**LEAST, "podDisruptionBudget": {"enabled": False}})
    assert objects.keys() == {"ConfigMap", "Deployment", "Service"}
    assert objects["Deployment"]["spec"]["replicas"] == 2


def test_secrets_are_in_secrets_alone(chart: Any) -> None:
    values = {"SPECCLIENT_SERVER_KEY": "sk-operator", "PGPASSWORD": "data-base"}
    objects = _render(chart, {"config": {"ledger": "postgresql://me@host/db"}, "secret": {"values": values}})
    secret = objects.pop("Secret")
    assert secret["stringData"] == values
    (reference,) = _pod(objects)["containers"][0]["envFrom"]
    assert reference == {"secretRef": {"name": secret["metadata"]["name"]}}
    assert not any(value in yaml.safe_dump(objects) for value in values.values())
    pod = _pod(_render(chart, {"configSecret": "mine", "secret": {"existing": "keys"}}))
    assert {"name": "config", "secret": {"secretName": "mine"}} in pod["volumes"]


def test_a_new_configuration_replaces_the_pods(chart: Any) -> None:
    def checksums(values: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = _render(chart, values)["Deployment"]["spec"]["template"]["metadata"][
            "annotations"
        ]
        return found

    changed = {**LEAST, "config": {"ledger": "off", "pacing": False}}
    assert checksums(LEAST) == checksums(dict(LEAST))
    assert checksums(LEAST)["checksum/config"] != checksums(changed)["checksum/config"]
