"""The configuration of Ray Serve for a fleet: the arguments of ``ray.serve.llm:build_openai_app``.

One application holds a deployment of vLLM for each pool, and an ingress with OpenAI's API that finds the pool
by the model's name. Sources: https://docs.ray.io/en/latest/serve/llm/ and
https://docs.ray.io/en/latest/serve/production-guide/config.html, as of Ray 2.60.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from specclient_local.fleets.fleet import Fleet, FleetPool

__all__ = ["BUILDER", "http_options", "is_secret", "model_deployment", "serve_application", "serve_file"]

BUILDER = "ray.serve.llm:build_openai_app"
"""The function of Ray Serve that builds a fleet's application."""

_PREFIX_ROUTER = "ray.serve.llm.request_router:PrefixCacheAffinityRouter"
_INGRESS = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": 4096, "num_replicas": 1}
"""The ingress hands requests on, so that it waits most of the time."""

_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)


def is_secret(variable: str) -> bool:
    """Return whether a variable of the environment holds a secret, by its name: rendered files leave it
    out.
    """
    return bool(_SECRET.search(variable))


def model_deployment(pool: FleetPool) -> str:
    """Return the name that Ray Serve gives to the deployment of a pool's replicas."""
    return f"LLMServer:{pool.name}"


def serve_application(fleet: Fleet, *, secrets: bool) -> dict[str, Any]:
    """Return a fleet's application, as Ray Serve's configuration files have it.

    Args:
        secrets: whether the variables that hold secrets are included.
    """
    return {
        "name": fleet.name,
        "route_prefix": f"/{fleet.name}",
        "import_path": BUILDER,
        "args": {
            "llm_configs": [_model(fleet, pool, secrets=secrets) for pool in fleet.pools],
            "ingress_deployment_config": _INGRESS,
        },
    }


def serve_file(fleet: Fleet) -> dict[str, Any]:
    """Return the configuration file with a fleet's application alone, without secrets."""
    return {
        "proxy_location": "EveryNode",
        "http_options": http_options(fleet),
        "applications": [serve_application(fleet, secrets=False)],
    }


def http_options(fleet: Fleet) -> dict[str, Any]:
    """Return the address of Ray Serve's HTTP proxies; all interfaces where the fleet's is another machine."""
    parts = urlsplit(fleet.url)
    host = parts.hostname or "127.0.0.1"
    loopback = host == "localhost" or host.startswith("127.") or host == "::1"
    return {"host": "127.0.0.1" if loopback else "0.0.0.0", "port": parts.port or 8000}  # noqa: S104 - the nodes' addresses are unknown


def _model(fleet: Fleet, pool: FleetPool, *, secrets: bool) -> dict[str, Any]:
    """Return the ``LLMConfig`` of a pool."""
    variables = {name: value for name, value in fleet.env.items() if secrets or not is_secret(name)}
    found: dict[str, Any] = {
        "model_loading_config": {"model_id": pool.name, "model_source": fleet.deployment.target},
        "engine_kwargs": fleet.engine_arguments(pool),
        "deployment_config": _deployment(fleet, pool),
        "placement_group_config": {"bundles": _bundles(fleet), "strategy": "PACK"},
        "log_engine_metrics": True,
    }
    if fleet.accelerator is not None:
        found["accelerator_type"] = fleet.accelerator
    if variables:
        found["runtime_env"] = {"env_vars": variables}
    return found


def _deployment(fleet: Fleet, pool: FleetPool) -> dict[str, Any]:
    found: dict[str, Any] = {"max_ongoing_requests": fleet.slots, "ray_actor_options": {"num_cpus": 0}}
    if pool.scales:
        found["autoscaling_config"] = {
            "min_replicas": pool.least,
            "max_replicas": pool.most,
            "target_ongoing_requests": fleet.target_requests,
        }
    else:
        found["num_replicas"] = pool.least
    if fleet.prefixes:
        found["request_router_config"] = {"request_router_class": _PREFIX_ROUTER}
    return found


def _bundles(fleet: Fleet) -> list[Mapping[str, float]]:
    """Return what each device of a replica needs: a share of its processors, and a GPU if it has any."""
    share: dict[str, float] = {"CPU": fleet.cpus / fleet.devices}
    if fleet.gpus:
        share["GPU"] = 1
    return [share] * fleet.devices
