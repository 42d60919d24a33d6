"""A fleet as a Compose file: vLLM servers, two gateways, PostgreSQL and Redis on one machine.

Source: https://github.com/compose-spec/compose-spec/blob/main/spec.md
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
    gateway_settings,
    mounted_folders,
    server_options,
)
from specclient_local.fleets.fleet import Fleet, FleetPool
from specclient_local.fleets.serve_config import is_secret

__all__ = ["compose_file"]

_CONFIG = "/etc/specclient/specclient.toml"


def compose_file(fleet: Fleet) -> dict[str, Any]:
    """Return the file. Each pool is a service; its name finds all of its replicas in turn."""
    services = {f"{fleet.name}-{pool.name}": _replicas(fleet, pool) for pool in fleet.pools}
    gateways = {f"gateway-{number}": _gateway(fleet, port) for number, port in ((1, 8400), (2, 8401))}
    addresses = {pool.name: f"http://{fleet.name}-{pool.name}:{PORT}/v1" for pool in fleet.pools}
    return {
        "name": fleet.name,
        "services": {**services, **gateways, "postgres": _postgres(), "redis": _redis()},
        "configs": {"gateway": {"content": gateway_settings(fleet, addresses)}},
        "volumes": {"postgres": {}, "huggingface": {}},
    }


def _needed(name: str) -> str:
    return f"${{{name}:?{name} is not set}}"


def _replicas(fleet: Fleet, pool: FleetPool) -> dict[str, Any]:
    environment = {name: _needed(name) if is_secret(name) else value for name, value in fleet.env.items()}
    deploy: dict[str, Any] = {"replicas": pool.least}
    if fleet.gpus:
        device = {"driver": "nvidia", "count": fleet.gpus, "capabilities": ["gpu"]}
        deploy["resources"] = {"reservations": {"devices": [device]}}
    else:
        deploy["resources"] = {"limits": {"cpus": f"{fleet.cpus:g}"}}
    mounts = [f"{path}:{path}:ro" for path in mounted_folders(fleet).values()]
    return {
        "image": fleet.image or VLLM_IMAGE,
        "entrypoint": ["vllm", "serve"],
        "command": [word.replace("$", "$$") for word in server_options(fleet, pool)],
        "environment": {**environment, KEY_VARIABLE: _needed(KEY_VARIABLE)},
        "volumes": [*mounts, "huggingface:/root/.cache/huggingface"],
        "deploy": deploy,
        "shm_size": "2gb",
        "healthcheck": {
            "test": [
                "CMD", "python3", "-c",
                f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health', timeout=3)",
            ],
            "interval": "10s", "timeout": "5s", "retries": 6, "start_period": f"{fleet.start_s:.0f}s",
        },
        "restart": "unless-stopped",
    }  # fmt: skip


def _gateway(fleet: Fleet, port: int) -> dict[str, Any]:
    started = {name: {"condition": "service_healthy"} for name in ("postgres", "redis")}
    # gateways answer for the other pools while one starts
    started |= {f"{fleet.name}-{pool.name}": {"condition": "service_started"} for pool in fleet.pools}
    return {
        "image": GATEWAY_IMAGE,
        "command": ["serve", "--host", "0.0.0.0", "--port", "8400"],  # noqa: S104 - of the container
        "environment": {
            "SPECCLIENT_CONFIG": _CONFIG,
            "SPECCLIENT_LEDGER": "postgresql://specclient@postgres:5432/specclient",
            "PGPASSWORD": _needed("POSTGRES_PASSWORD"),
            "SPECCLIENT_REDIS_URL": f"redis://:{_needed('REDIS_PASSWORD')}@redis:6379/0",
            "SPECCLIENT_SERVER_KEY": _needed("SPECCLIENT_SERVER_KEY"),
            KEY_VARIABLE: _needed(KEY_VARIABLE),
        },
        "configs": [{"source": "gateway", "target": _CONFIG}],
        "depends_on": started,
        "ports": [f"127.0.0.1:{port}:8400"],
        "read_only": True,
        "tmpfs": ["/tmp", "/var/lib/specclient:uid=10001,gid=10001"],  # noqa: S108 - of the container
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "stop_grace_period": "40s",
        "restart": "unless-stopped",
    }


def _postgres() -> dict[str, Any]:
    return {
        "image": POSTGRES_IMAGE,
        "environment": {
            "POSTGRES_USER": "specclient",
            "POSTGRES_DB": "specclient",
            "POSTGRES_PASSWORD": _needed("POSTGRES_PASSWORD"),
        },
        "volumes": ["postgres:/var/lib/postgresql/data"],
        "healthcheck": {
            "test": ["CMD", "pg_isready", "--quiet", "--username=specclient", "--dbname=specclient"],
            "interval": "5s",
            "timeout": "5s",
            "retries": 12,
        },
        "restart": "unless-stopped",
    }


def _redis() -> dict[str, Any]:
    return {
        "image": REDIS_IMAGE,
        "command": ["redis-server", "--save", "", "--requirepass", _needed("REDIS_PASSWORD")],
        "environment": {"REDISCLI_AUTH": _needed("REDIS_PASSWORD")},
        "healthcheck": {
            "test": ["CMD-SHELL", "redis-cli ping | grep --quiet PONG"],
            "interval": "5s",
            "timeout": "5s",
            "retries": 12,
        },
        "restart": "unless-stopped",
    }
