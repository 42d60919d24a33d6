"""Fleets as files for other tools: Ray Serve, KubeRay, Kubernetes and Compose."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.fleets.compose import compose_file
from specclient_local.fleets.fleet import Fleet
from specclient_local.fleets.kuberay import ray_service
from specclient_local.fleets.kubernetes import kubernetes_objects
from specclient_local.fleets.serve_config import is_secret, serve_file

__all__ = ["RENDERINGS", "rendered"]

RENDERINGS = ("serve", "kuberay", "kubernetes", "compose")
"""The kinds of files."""


def rendered(fleet: Fleet, kind: str) -> str:
    """Return a fleet as a YAML file.

    Args:
        fleet: the fleet.
        kind: one of :data:`RENDERINGS`.

    Raises:
        ConfigurationError: the kind needs a setting that the fleet lacks, or PyYAML is missing.
    """
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise ConfigurationError("files are written with PyYAML; pip install 'specclient[ray]'") from None
    dumper: Any = type("FleetDumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, _text_node)
    dumper.ignore_aliases = lambda *_: True  # equal objects are written out
    head, documents = _DOCUMENTS[kind](fleet)
    texts = [
        yaml.dump(each, Dumper=dumper, sort_keys=False, width=110, allow_unicode=True) for each in documents
    ]
    return "".join(f"# {line}\n" for line in head) + "---\n".join(texts)


def _text_node(dumper: Any, text: str) -> Any:
    """Return the node of a text: a block where it has several lines."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _serve(fleet: Fleet) -> tuple[list[str], list[dict[str, Any]]]:
    secrets = sorted(filter(is_secret, fleet.env))
    head = [
        f"Ray Serve: `serve deploy FILE` starts the fleet {fleet.name!r}, in place of the applications of "
        f"earlier files."
    ]
    if secrets:
        head.append(f"Set {', '.join(secrets)} in the environment of all nodes.")
    return head, [serve_file(fleet)]


def _kuberay(fleet: Fleet) -> tuple[list[str], list[dict[str, Any]]]:
    return ["KubeRay: `kubectl apply -f FILE`.", *_secret_line(fleet)], [ray_service(fleet)]


def _kubernetes(fleet: Fleet) -> tuple[list[str], list[dict[str, Any]]]:
    keys = ["VLLM_API_KEY", "SPECCLIENT_SERVER_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"]
    keys += sorted(filter(is_secret, fleet.env))
    head = [
        "Kubernetes: make the Secret, then `kubectl apply -f FILE`.",
        f"kubectl create secret generic {fleet.name}-keys "
        + " ".join(f'--from-literal={key}="$(openssl rand -hex 24)"' for key in keys),
    ]
    return head, kubernetes_objects(fleet)


def _compose(fleet: Fleet) -> tuple[list[str], list[dict[str, Any]]]:
    keys = ["VLLM_API_KEY", "SPECCLIENT_SERVER_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"]
    keys += sorted(filter(is_secret, fleet.env))
    head = [
        f"Compose: set {', '.join(keys)} in .env (letters and digits), then `docker compose -f FILE up "
        f"--detach`.",
        "The image specclient:slim is built from the project's Dockerfile, target slim.",
    ]
    return head, [compose_file(fleet)]


def _secret_line(fleet: Fleet) -> list[str]:
    secrets = sorted(filter(is_secret, fleet.env))
    return [f"The Secret {fleet.name}-keys must have {', '.join(secrets)}."] if secrets else []


_DOCUMENTS: dict[str, Callable[[Fleet], tuple[list[str], list[dict[str, Any]]]]] = {
    "serve": _serve,
    "kuberay": _kuberay,
    "kubernetes": _kubernetes,
    "compose": _compose,
}
