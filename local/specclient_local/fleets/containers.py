"""The common parts of containers of replicas and gateways in Kubernetes and Compose."""

from __future__ import annotations

import json
from typing import Any

from specclient_local.fleets.fleet import Fleet, FleetPool
from specclient_local.fleets.serve_config import is_secret

__all__ = [
    "GATEWAY_IMAGE",
    "KEY_VARIABLE",
    "PORT",
    "POSTGRES_IMAGE",
    "REDIS_IMAGE",
    "VLLM_IMAGE",
    "container_variables",
    "gateway_settings",
    "mounted_folders",
    "secret_variable",
    "server_options",
]  # fmt: skip

VLLM_IMAGE, GATEWAY_IMAGE = "vllm/vllm-openai:v0.33.0", "specclient:slim"
POSTGRES_IMAGE, REDIS_IMAGE = "postgres:17-alpine", "redis:7.4-alpine"
PORT = 8000
"""The port of replicas."""
KEY_VARIABLE = "VLLM_API_KEY"
"""The variable with the key of replicas, which gateways send."""


def server_options(fleet: Fleet, pool: FleetPool) -> list[str]:
    """Return the words after ``vllm serve`` for a replica of a pool."""
    words = [fleet.deployment.target, "--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 - of the container
    words += ["--served-model-name", pool.name, "--enable-prompt-tokens-details"]
    for name, value in fleet.engine_arguments(pool).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option.removeprefix('--')}")
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        else:
            words += [option, json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def gateway_settings(fleet: Fleet, addresses: dict[str, str]) -> str:
    """Return the ``specclient.toml`` of gateways.

    Args:
        fleet: the fleet.
        addresses: base URLs of the pools' servers, by pool.
    """
    lines = [
        f"[fleets.{fleet.name}]",
        f"path = {json.dumps(fleet.deployment.target)}",
        f"api_key_env = {json.dumps(KEY_VARIABLE)}",
    ]
    for pool in fleet.pools:
        lines += [
            "",
            f"[fleets.{fleet.name}.pools.{pool.name}]",
            f"draft_length = {pool.draft_length}",
            f"replicas = {pool.least}",
            f"url = {json.dumps(addresses[pool.name])}",
            "each_address = true",
        ]
    return "\n".join(lines) + "\n"


def container_variables(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the variables of a replica for Kubernetes; secrets are those of the Secret ``NAME-keys``."""
    return [
        secret_variable(fleet, name) if is_secret(name) else {"name": name, "value": value}
        for name, value in fleet.env.items()
    ]


def secret_variable(fleet: Fleet, name: str, key: str = "") -> dict[str, Any]:
    """Return a variable for Kubernetes whose value is in the Secret of the fleet.

    Args:
        fleet: the fleet.
        name: the variable.
        key: its key in the Secret; empty for the variable's name.
    """
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": f"{fleet.name}-keys", "key": key or name}}}


def mounted_folders(fleet: Fleet) -> dict[str, str]:
    """Return the folders of checkpoints on the nodes, by the name of their volume; none for hub ids."""
    named = {"target": fleet.deployment.target, "draft": fleet.deployment.draft or ""}
    return {name: path for name, path in named.items() if path.startswith("/")}
