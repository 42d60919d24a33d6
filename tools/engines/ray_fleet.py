"""Run replicas of vLLM behind one endpoint, on a Ray of its own.

    python ray_fleet.py PORT OPTIONS

OPTIONS is JSON: ``replicas`` (a number, or the fewest and the most of them) and ``speculation`` (vLLM's
``speculative_config``, or null). Each line of the standard input is a command, answered by a line of JSON
after ``@``: ``{"deploy": OPTIONS}``, ``{"state": true}``, ``{"kill": true}`` (a replica, by SIGKILL). It runs
in the environment of vLLM and Ray, until SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import ray

_TARGET: Final = Path(__file__).resolve().parents[2] / "local" / "specclient_local" / "bundled" / "target"
_ENVIRONMENT: Final = ("HF_HUB_OFFLINE", "OMP_NUM_THREADS", "PATH", "HOME")
_MIB: Final = 2**20


def main(port: int, options: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    options_of_ray = {"num_cpus": 8, "include_dashboard": False, "object_store_memory": 256 * _MIB}
    ray.init("local", log_to_driver=False, **options_of_ray)  # not a cluster that runs already
    from ray import serve  # noqa: PLC0415 - only after ray.init, whose settings it uses

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        _deploy(options)
        print("@", json.dumps("ready"), flush=True)
        for line in sys.stdin:
            print("@", json.dumps(_answer(json.loads(line))), flush=True)
        signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()


def _answer(command: dict[str, Any]) -> Any:
    if "deploy" in command:
        _deploy(command["deploy"])
        return "deployed"
    if "kill" in command:
        victim = min(_replicas())
        os.kill(victim, signal.SIGKILL)
        return victim
    return _state()


def _deploy(options: dict[str, Any]) -> None:
    """Deploy the model, or replace its deployment; return when the replicas are ready."""
    from ray import serve  # noqa: PLC0415
    from ray.serve.llm import LLMConfig, build_openai_app  # noqa: PLC0415

    deployment: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0.5}, "max_ongoing_requests": 64}
    replicas, speculation = options["replicas"], options["speculation"]
    if isinstance(replicas, int):
        deployment["num_replicas"] = replicas
    else:
        fewest, most = replicas
        deployment["autoscaling_config"] = {
            "min_replicas": fewest, "max_replicas": most, "initial_replicas": fewest,
            "target_ongoing_requests": 2, "upscale_delay_s": 1, "downscale_delay_s": 5,
            "metrics_interval_s": 1, "look_back_period_s": 3,
        }  # fmt: skip
    engine: dict[str, Any] = {"dtype": "float32", "max_model_len": 512, "enforce_eager": True}
    if speculation is not None:
        engine |= {"speculative_config": speculation, "per_request_spec_decode_metrics": "summary"}
    variables = {k: v for k, v in os.environ.items() if k in _ENVIRONMENT or k.startswith("VLLM_")}
    config = LLMConfig(
        model_loading_config={"model_id": "target", "model_source": str(_TARGET)},
        deployment_config=deployment,
        placement_group_config={"bundles": [{"CPU": 0.5}]},
        engine_kwargs=engine,
        runtime_env={"env_vars": variables},
    )
    serve.run(build_openai_app({"llm_configs": [config]}))


def _state() -> dict[str, dict[str, int]]:
    """Return the number of replicas by deployment and state."""
    from ray import serve  # noqa: PLC0415

    found: dict[str, dict[str, int]] = {}
    for application in serve.status().applications.values():
        for name, deployment in application.deployments.items():
            found[name] = {str(getattr(k, "value", k)): v for k, v in deployment.replica_states.items()}
    return found


def _replicas() -> list[int]:
    """Return the processes of the replicas with a model."""
    found: list[int] = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::ServeReplica") and "LLMServer" in title:
            found.append(process.pid)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
