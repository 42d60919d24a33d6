"""Rendered files: they parse, name no secret, and their parts belong together."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from ray_clusters import fleet_of
from specclient_local.fleets.rendering import RENDERINGS, rendered

from specclient import ConfigurationError
from specclient.config import Settings

FLEET = fleet_of(
    path="Qwen/Qwen3-8B", draft="Qwen/Qwen3-0.6B", context=8192, accelerator="H100", cpus=8,
    image="example/vllm:1",
    env={"HF_TOKEN": "hf_secret", "HF_HUB_OFFLINE": "1"},
    pools={"d0": {"draft_length": 0, "replicas": [1, 3]}, "d5": {"draft_length": 5, "replicas": 2}},
)  # fmt: skip


def documents(kind: str) -> list[Any]:
    return list(yaml.safe_load_all(rendered(FLEET, kind)))


@pytest.mark.parametrize("kind", RENDERINGS)
def test_files_hold_no_secrets(kind: str) -> None:
    text = rendered(FLEET, kind)
    assert "hf_secret" not in text
    assert "HF_TOKEN" in "".join(line for line in text.splitlines() if line.startswith("#"))
    assert "HF_HUB_OFFLINE" in text


def test_serve_has_a_model_for_each_pool() -> None:
    [config] = documents("serve")
    [application] = config["applications"]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    assert application["route_prefix"] == "/big"
    plain, drafting = application["args"]["llm_configs"]
    assert plain["model_loading_config"] == {"model_id": "d0", "model_source": "Qwen/Qwen3-8B"}
    assert plain["deployment_config"]["autoscaling_config"]["max_replicas"] == 3
    assert drafting["deployment_config"]["num_replicas"] == 2
    assert drafting["engine_kwargs"]["speculative_config"]["num_speculative_tokens"] == 5
    assert drafting["placement_group_config"]["bundles"] == [{"CPU": 8.0, "GPU": 1}]
    assert drafting["accelerator_type"] == "H100"


def test_kuberay_has_a_worker_for_each_replica() -> None:
    [service] = documents("kuberay")
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert json.loads(service["spec"]["serveConfigV2"])["applications"][0]["name"] == "big"
    cluster = service["spec"]["rayClusterConfig"]
    [workers] = cluster["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (3, 5)
    assert cluster["enableInTreeAutoscaling"] is True
    [container] = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    with pytest.raises(ConfigurationError, match="set image"):
        rendered(fleet_of(), "kuberay")


def test_kubernetes_services_select_their_pods() -> None:
    objects = documents("kubernetes")
    named = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(named) == len(objects)
    for (kind, name), each in named.items():
        if kind == "Service":
            workload = named.get(("Deployment", name)) or named["StatefulSet", name]
            template = workload["spec"]["template"]
            assert each["spec"]["selector"] == template["metadata"]["labels"]
            [port] = each["spec"]["ports"]
            ports = [one["containerPort"] for one in template["spec"]["containers"][0]["ports"]]
            assert port["targetPort"] in ports
    for each in objects:
        for container in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            volumes = {volume["name"] for volume in each["spec"]["template"]["spec"].get("volumes", [])}
            volumes |= {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
    replica = named["Deployment", "big-d5"]["spec"]
    assert replica["replicas"] == 2
    arguments = replica["template"]["spec"]["containers"][0]["args"]
    assert json.loads(arguments[arguments.index("--speculative-config") + 1])["num_speculative_tokens"] == 5
    assert arguments[arguments.index("--served-model-name") + 1] == "d5"


def test_gateways_have_the_pools_as_a_fleet() -> None:
    [config] = [each for each in documents("kubernetes") if each["kind"] == "ConfigMap"]
    settings = Settings.model_validate(tomllib.loads(config["data"]["specclient.toml"]))
    pools = settings.fleets["big"].named_pools
    assert {name: pool.url for name, pool in pools.items()} == {
        "d0": "http://big-d0:8000/v1",
        "d5": "http://big-d5:8000/v1",
    }
    assert all(pool.each_address for pool in pools.values()), "calls are placed on each replica"
    services = [each for each in documents("kubernetes") if each["kind"] == "Service"]
    headless = {each["metadata"]["name"] for each in services if each["spec"].get("clusterIP") == "None"}
    assert headless == {"big-d0", "big-d5"}
    [compose] = documents("compose")
    content = compose["configs"]["gateway"]["content"]
    assert Settings.model_validate(tomllib.loads(content)).fleets["big"].named_pools == pools
    assert content == config["data"]["specclient.toml"]


def test_compose_is_complete() -> None:
    [content] = documents("compose")
    services = content["services"]
    assert services.keys() == {"big-d0", "big-d5", "gateway-1", "gateway-2", "postgres", "redis"}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source.startswith("/") or source in content["volumes"]
    assert services["big-d5"]["deploy"]["replicas"] == 2
    assert services["big-d5"]["environment"]["VLLM_API_KEY"].startswith("${VLLM_API_KEY:?")


def test_compose_follows_the_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="the extra `deploy` is not installed")
    text = rendered(FLEET, "compose")
    compose_spec.PyCompose.from_yaml(text).validate()
    with pytest.raises(ValueError, match="heathcheck"):
        compose_spec.PyCompose.from_yaml(text.replace("healthcheck:", "heathcheck:"))


def test_objects_follow_the_schemas_of_kubernetes() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="the extra `deploy` is not installed")
    objects = documents("kubernetes")
    for each in objects:
        validator.validate(each, validator.latest_version(), strict=True)
    objects[1]["spec"]["replica"] = 1
    with pytest.raises(validator.ValidationError, match="replica"):
        validator.validate(objects[1], validator.latest_version(), strict=True)


def test_local_checkpoints_are_mounted() -> None:
    [content] = list(yaml.safe_load_all(rendered(fleet_of(), "compose")))
    target = fleet_of().deployment.target
    assert f"{target}:{target}:ro" in content["services"]["big-d0"]["volumes"]
    assert "--max-model-len" in content["services"]["big-d0"]["command"]
