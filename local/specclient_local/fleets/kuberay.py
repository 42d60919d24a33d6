"""A fleet as a ``RayService`` of KubeRay.

Source: https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayservice-quick-start.html, API
``ray.io/v1``.
"""

from __future__ import annotations

import json
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.fleets.containers import container_variables, mounted_folders
from specclient_local.fleets.fleet import Fleet
from specclient_local.fleets.serve_config import serve_file

__all__ = ["ray_service"]

_HEAD_CPUS, _HEAD_MEMORY = "1", "4Gi"


def ray_service(fleet: Fleet) -> dict[str, Any]:
    """Return the object. One worker pod holds one replica.

    Raises:
        ConfigurationError: the fleet names no image.
    """
    if fleet.image is None:
        raise ConfigurationError(
            f"fleet {fleet.name!r}: a RayService needs an image with Ray and vLLM of one version for all "
            f"pods; set "
            'image, such as image = "rayproject/ray-llm:TAG"'
        )
    least = sum(pool.least for pool in fleet.pools)
    most = sum(pool.most for pool in fleet.pools)
    worker = {
        "groupName": "replicas",
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": most,
        "rayStartParams": {},
        "template": _pod(fleet, "ray-worker", _replica_resources(fleet)),
    }
    head = {"cpu": _HEAD_CPUS, "memory": _HEAD_MEMORY}
    cluster: dict[str, Any] = {
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},  # noqa: S104 - of the pod
            "template": _pod(fleet, "ray-head", head),
        },
        "workerGroupSpecs": [worker],
    }
    if most > least:
        cluster = {"enableInTreeAutoscaling": True, **cluster}
    serve = {**serve_file(fleet), "http_options": {"host": "0.0.0.0", "port": 8000}}  # noqa: S104
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": fleet.name},
        # JSON is YAML, which KubeRay reads
        "spec": {"serveConfigV2": json.dumps(serve, indent=1), "rayClusterConfig": cluster},
    }


def _replica_resources(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = {"cpu": f"{fleet.cpus:g}"}
    if fleet.gpus:
        found["nvidia.com/gpu"] = fleet.gpus
    return found


def _pod(fleet: Fleet, name: str, resources: dict[str, Any]) -> dict[str, Any]:
    folders = mounted_folders(fleet)
    container: dict[str, Any] = {
        "name": name,
        "image": fleet.image,
        "env": container_variables(fleet),
        "resources": {"requests": resources, "limits": resources},
    }
    if name == "ray-head":
        ports = (("gcs-server", 6379), ("dashboard", 8265), ("client", 10001), ("serve", 8000))
        container["ports"] = [{"name": port, "containerPort": number} for port, number in ports]
    spec: dict[str, Any] = {"containers": [container]}
    if folders:
        container["volumeMounts"] = [
            {"name": volume, "mountPath": path, "readOnly": True} for volume, path in folders.items()
        ]
        spec["volumes"] = [{"name": volume, "hostPath": {"path": path}} for volume, path in folders.items()]
    return {"spec": spec}
