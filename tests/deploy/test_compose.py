"""``compose.yaml``: valid, complete, without secrets, and consistent with the files that it mounts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from compose_file import COMPOSE, VARIABLE, VARIABLES, compose_file, compose_text, mounted, variables
from paths import ROOT

CONTENT = compose_file()
SERVICES: dict[str, Any] = CONTENT["services"]
GATEWAYS = ("gateway-1", "gateway-2")


def _docker_compose() -> list[str]:
    """Return the command of Docker Compose 2, which checks a file without a daemon."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True)
            if done.returncode == 0 and done.stdout.strip().lstrip("v") >= "2":
                return command
    pytest.skip("Docker Compose 2 is not installed")


def test_docker_compose_reads_the_file_as_the_tests_do() -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **VARIABLES}
    command = [*_docker_compose(), "--env-file", os.devnull, "--file", str(COMPOSE), "config"]
    done = subprocess.run([*command, "--format", "json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)["services"]
    assert theirs.keys() == SERVICES.keys()
    for name, service in SERVICES.items():
        assert theirs[name].get("environment") == service.get("environment")
        assert theirs[name].get("command") == service.get("command")
    del environment["REDIS_PASSWORD"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "REDIS_PASSWORD is not set; see deploy/env.example" in done.stderr


def test_the_file_follows_the_compose_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="the extra `deploy` is not installed")
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(CONTENT)).validate()
    wrong = compose_text().replace("healthcheck:", "heathcheck:")
    with pytest.raises(ValueError, match="heathcheck"):
        compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(wrong)))


def test_images_have_versions() -> None:
    for service in SERVICES.values():
        assert re.fullmatch(r"[\w/.-]+:[\w.-]+", service["image"])
        assert not service["image"].endswith(":latest")


def test_services_wait_for_healthy_ones() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    checked = {name for name, service in SERVICES.items() if "healthcheck" in service}
    assert "\nHEALTHCHECK " in dockerfile
    checked |= {name for name, service in SERVICES.items() if "build" in service}
    assert checked == SERVICES.keys()
    for service in SERVICES.values():
        for name, condition in service.get("depends_on", {}).items():
            assert name in SERVICES
            assert condition == {"condition": "service_healthy"}


def test_named_volumes_and_secrets_are_declared() -> None:
    named, secrets = set(), set()
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists()
                assert volume.endswith(":ro")
            else:
                named.add(source)
        secrets |= set(service.get("secrets", []))
    assert named == CONTENT["volumes"].keys()
    assert secrets == CONTENT["secrets"].keys()


def test_no_secret_is_in_the_file() -> None:
    """Whatever is named like a secret comes from a variable, which is required or passed on."""
    secret = re.compile(r"password|_key\b|auth\b|requirepass", re.IGNORECASE)
    for service in yaml.safe_load(COMPOSE.read_text())["services"].values():
        for name, value in service.get("environment", {}).items():
            if secret.search(name) and value is not None:
                found = VARIABLE.fullmatch(value)
                assert found
                assert found["kind"] == "?"
    assert [name for name in VARIABLES if variables()[name] != "?"] == []
    for name in VARIABLES:
        with pytest.raises(KeyError, match=name):
            compose_file({**VARIABLES, name: ""})


def test_the_example_of_the_environment_lists_all_variables() -> None:
    text = (ROOT / "deploy" / "env.example").read_text()
    listed = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE))
    passed_on = {name for name, value in SERVICES["gateway-1"]["environment"].items() if value is None}
    assert listed.keys() == variables().keys() | passed_on
    for name, default in variables().items():
        assert listed[name] == ("" if default == "?" else default)


def test_gateways_are_alike_and_confined() -> None:
    first, second = (dict(SERVICES[name]) for name in GATEWAYS)
    assert first.pop("ports") != second.pop("ports")
    assert first == second
    assert first["read_only"]
    assert first["cap_drop"] == ["ALL"]
    assert first["security_opt"] == ["no-new-privileges:true"]
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_gateways_have_time_to_stop() -> None:
    service = SERVICES["gateway-1"]
    file = ROOT / mounted(service, service["environment"]["SPECCLIENT_CONFIG"])
    grace_s = tomllib.loads(file.read_text())["server"]["grace_s"]
    assert int(service["stop_grace_period"].removesuffix("s")) >= grace_s + 10


def test_prometheus_and_grafana_find_the_services() -> None:
    file = ROOT / mounted(SERVICES["prometheus"], "/etc/prometheus/prometheus.yml")
    (job,) = yaml.safe_load(file.read_text())["scrape_configs"]
    (targets,) = (each["targets"] for each in job["static_configs"])
    assert targets == [f"{name}:8400" for name in GATEWAYS]
    (secret,) = SERVICES["prometheus"]["secrets"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    assert CONTENT["secrets"][secret] == {"environment": "SPECCLIENT_SERVER_KEY"}
    provisioning = ROOT / mounted(SERVICES["grafana"], "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "specclient.yaml").read_text())["providers"]
    assert list((ROOT / mounted(SERVICES["grafana"], provider["options"]["path"])).glob("*.json"))
