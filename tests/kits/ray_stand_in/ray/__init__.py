"""A stand-in for Ray with the functions that fleets use, for tests where Ray is not installed.

The cluster is the JSON file that ``RAY_STAND_IN`` names: its nodes, applications and stored values, and how
deployments end (``outcome``: ``ready``, ``failed`` or ``never``). Statuses have the form of Ray 2.60.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

from ray.util import scheduling_strategies

__version__ = "2.60.0"


class GetTimeoutError(Exception):
    """As ray.exceptions.GetTimeoutError."""


exceptions = SimpleNamespace(GetTimeoutError=GetTimeoutError)
util = SimpleNamespace(scheduling_strategies=scheduling_strategies)


def cluster() -> dict:
    return json.loads(Path(os.environ["RAY_STAND_IN"]).read_text())


def write(state: dict) -> None:
    target = Path(os.environ["RAY_STAND_IN"])
    new = target.with_name(f"{target.name}.{os.getpid()}")
    new.write_text(json.dumps(state))
    new.replace(target)  # readers see the old state or the new one


def init(address: str, **options: object) -> None:
    token = cluster().get("token")
    if token is not None and Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text() != token:
        raise ConnectionError("the token is not the cluster's")
    if cluster().get("broken"):
        raise ConnectionError("ray client connection timeout")


def shutdown() -> None:
    pass


def nodes() -> list[dict]:
    return cluster()["nodes"]


def cluster_resources() -> dict:
    total: dict[str, float] = {}
    for node in nodes():
        for key, value in node["Resources"].items():
            total[key] = total.get(key, 0) + value
    return total


class _Task:
    def __init__(self, function: object, options: dict) -> None:
        self._function, self._options = function, options

    def options(self, **options: object) -> _Task:
        return _Task(self._function, {**self._options, **options})

    def remote(self, *arguments: object) -> object:
        found = self._function(*arguments)
        if isinstance(found, dict) and "vllm" in found:
            found["vllm"] = cluster()["vllm"] is not None
        return found


def remote(function: object) -> _Task:
    return _Task(function, {})


def get(found: object, timeout: float | None = None) -> object:
    if cluster().get("busy"):
        raise GetTimeoutError
    return found


def wait(tasks: list, num_returns: int, timeout: float) -> tuple[list, list]:
    return tasks, []


class _Node:
    def get_session_dir_path(self) -> str:
        return cluster()["session"]


_private = SimpleNamespace(worker=SimpleNamespace(_global_node=_Node()))
