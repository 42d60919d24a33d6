"""Applications as the builder of Ray Serve LLM makes them: an ingress, and a deployment for each model."""

from types import SimpleNamespace


class Application:
    def __init__(self, name: str, arguments: dict, **given: object) -> None:
        self.arguments = arguments
        self._bound_deployment = SimpleNamespace(name=name, init_args=(), init_kwargs=given, _version=None)

    @property
    def versions(self) -> dict:
        found = {self._bound_deployment.name: self._bound_deployment._version}
        for each in self._bound_deployment.init_kwargs.get("llm_deployments", {}).values():
            found |= each.versions
        return found


def build_openai_app(args: dict) -> Application:
    names = [model["model_loading_config"]["model_id"] for model in args["llm_configs"]]
    models = {name: Application(f"LLMServer:{name}", {}, llm_config=object()) for name in names}
    return Application("OpenAiIngress", args, llm_deployments=models)
