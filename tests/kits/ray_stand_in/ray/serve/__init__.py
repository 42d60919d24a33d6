"""Applications of the stand-in."""

from types import SimpleNamespace

import ray


def start(http_options: dict) -> None:
    state = ray.cluster()
    state["http"] = http_options
    ray.write(state)


class RunTarget:
    def __init__(self, app: object, name: str, route_prefix: str) -> None:
        self.app, self.name, self.route_prefix = app, name, route_prefix


def run_many(targets: list, wait_for_applications_running: bool) -> None:
    state = ray.cluster()
    for target in targets:
        names = [model["model_loading_config"]["model_id"] for model in target.app.arguments["llm_configs"]]
        outcome = state["outcome"].pop(0) if state["outcome"] else "ready"
        status = {"ready": "RUNNING", "failed": "DEPLOY_FAILED", "never": "DEPLOYING"}[outcome]
        health = {"ready": "HEALTHY", "failed": "UNHEALTHY", "never": "UPDATING"}[outcome]
        state["applications"][target.name] = {
            "status": status,
            "message": "" if outcome != "failed" else "The deployment failed to start 3 times in a row.",
            "deployments": {
                **{f"LLMServer:{name}": health for name in names},
                "OpenAiIngress": health,
            },
            "arguments": target.app.arguments,
            "versions": target.app.versions,
        }
    ray.write(state)


def delete(name: str, _blocking: bool) -> None:
    state = ray.cluster()
    state["applications"].pop(name, None)
    ray.write(state)


def status() -> SimpleNamespace:
    found = {}
    for name, each in ray.cluster()["applications"].items():
        running = "RUNNING" if each["status"] == "RUNNING" else "STARTING"
        deployments = {
            deployment: SimpleNamespace(status=health, message="", replica_states={running: 1})
            for deployment, health in each["deployments"].items()
        }
        found[name] = SimpleNamespace(
            status=each["status"],
            message=each["message"],
            deployments=deployments,
        )
    return SimpleNamespace(applications=found)
