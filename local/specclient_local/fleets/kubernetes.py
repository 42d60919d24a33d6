"""A fleet as objects of Kubernetes: vLLM servers, two gateways, PostgreSQL and Redis.

Source: https://kubernetes.io/docs/reference/kubernetes-api/, ``apps/v1`` and ``v1``.
"""

from __future__ import annotations

from typing import Any

from specclient_local.fleets.containers import (
    GATEWAY_IMAGE,
    KEY_VARIABLE,
    PORT,
    POSTGRES_IMAGE,
    REDIS_IMAGE,
    VLLM_IMAGE,
    container_variables,
    gateway_settings,
    mounted_folders,
    secret_variable,
    server_options,
)
from specclient_local.fleets.fleet import Fleet, FleetPool

__all__ = ["kubernetes_objects"]

_STARTS_EVERY_S = 10
_SAFE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def kubernetes_objects(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the objects. Keys and passwords are in the Secret ``NAME-keys``, which they only refer to."""
    addresses = {pool.name: f"http://{fleet.name}-{pool.name}:{PORT}/v1" for pool in fleet.pools}
    settings = {"specclient.toml": gateway_settings(fleet, addresses)}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{fleet.name}-gateway"},
        "data": settings,
    }
    found: list[dict[str, Any]] = [config]
    for pool in fleet.pools:
        name = f"{fleet.name}-{pool.name}"
        found += [_deployment(name, pool.least, _replica(fleet, pool)), _service(name, PORT, headless=True)]
    gateway, postgres, redis = (f"{fleet.name}-{name}" for name in ("gateway", "postgres", "redis"))
    found += [_deployment(gateway, 2, _gateway(fleet)), _service(gateway, 8400)]
    found += [_postgres(fleet, postgres), _service(postgres, 5432)]
    found += [_deployment(redis, 1, _redis(fleet)), _service(redis, 6379)]
    return found


def _deployment(name: str, replicas: int, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(name: str, port: int, *, headless: bool = False) -> dict[str, Any]:
    """Return a service; by the name of a headless one gateways find each pod, and place calls on them."""
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": port, "targetPort": port}]},
    }
    if headless:
        found["spec"]["clusterIP"] = "None"
    return found


def _replica(fleet: Fleet, pool: FleetPool) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": f"{fleet.cpus:g}"}}
    if fleet.gpus:
        resources["limits"] = {"nvidia.com/gpu": fleet.gpus}
    probe = {"httpGet": {"path": "/health", "port": PORT}, "timeoutSeconds": 5}
    folders = mounted_folders(fleet)
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, path in folders.items()]
    volumes: list[dict[str, Any]] = [
        {"name": name, "hostPath": {"path": path}} for name, path in folders.items()
    ]
    volumes += [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "huggingface", "emptyDir": {}}]
    mounts += [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the container
        {"name": "huggingface", "mountPath": "/root/.cache/huggingface"},
    ]
    container = {
        "name": "vllm",
        "image": fleet.image or VLLM_IMAGE,
        "command": ["vllm", "serve"],
        "args": server_options(fleet, pool),
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [*container_variables(fleet), secret_variable(fleet, KEY_VARIABLE)],
        "resources": resources,
        "volumeMounts": mounts,
        "startupProbe": {
            **probe,
            "periodSeconds": _STARTS_EVERY_S,
            "failureThreshold": max(round(fleet.start_s / _STARTS_EVERY_S), 1),
        },
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
    }
    # without links: variables of services begin with their names, which vLLM could take for its settings
    return {"enableServiceLinks": False, "containers": [container], "volumes": volumes}


def _gateway(fleet: Fleet) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": 8400}, "timeoutSeconds": 3}
    container = {
        "name": "gateway",
        "image": GATEWAY_IMAGE,
        "args": ["serve", "--host", "0.0.0.0", "--port", "8400"],  # noqa: S104 - of the container
        "ports": [{"name": "http", "containerPort": 8400}],
        "env": [
            {"name": "SPECCLIENT_CONFIG", "value": "/etc/specclient/specclient.toml"},
            {
                "name": "SPECCLIENT_LEDGER",
                "value": f"postgresql://specclient@{fleet.name}-postgres:5432/specclient",
            },
            secret_variable(fleet, "PGPASSWORD", "POSTGRES_PASSWORD"),
            secret_variable(fleet, "REDIS_PASSWORD"),
            # Kubernetes fills in variables that come before
            {
                "name": "SPECCLIENT_REDIS_URL",
                "value": f"redis://:$(REDIS_PASSWORD)@{fleet.name}-redis:6379/0",
            },
            secret_variable(fleet, "SPECCLIENT_SERVER_KEY"),
            secret_variable(fleet, KEY_VARIABLE),
        ],
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        "securityContext": _SAFE,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/specclient", "readOnly": True},
            {"name": "home", "mountPath": "/var/lib/specclient"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
        ],
    }
    user = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 45,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{fleet.name}-gateway"}},
            {"name": "home", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _postgres(fleet: Fleet, name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "postgres",
        "image": POSTGRES_IMAGE,
        "ports": [{"name": "http", "containerPort": 5432}],
        "env": [
            {"name": "POSTGRES_USER", "value": "specclient"},
            {"name": "POSTGRES_DB", "value": "specclient"},
            {"name": "PGDATA", "value": "/var/lib/postgresql/data/pgdata"},
            secret_variable(fleet, "POSTGRES_PASSWORD"),
        ],
        "readinessProbe": {"exec": {"command": ["pg_isready", "--quiet", "--username=specclient"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [claim],
        },
    }


def _redis(fleet: Fleet) -> dict[str, Any]:
    command = ["redis-server", "--save", "", "--requirepass", "$(REDIS_PASSWORD)"]
    container = {
        "name": "redis",
        "image": REDIS_IMAGE,
        "args": command,
        "ports": [{"name": "http", "containerPort": 6379}],
        "env": [secret_variable(fleet, "REDIS_PASSWORD")],
        "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 5},
    }
    return {"containers": [container]}
