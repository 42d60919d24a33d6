"""llm: its ``Chat`` model by its base URL, or with its method ``get_client`` replaced."""

from typing import Any

import llm
from checks import PROMPT, Case, City, run, weather
from llm.default_plugins.openai_models import Chat


class _Chat(Chat):
    """Asks for a tool call: the library leaves it to the model, and the bundled one makes none by itself."""

    def build_kwargs(self, prompt: Any, stream: bool) -> dict[str, Any]:
        built = super().build_kwargs(prompt, stream)
        return {**built, "tool_choice": "required"} if prompt.tools else built


def _model(case: Case, name: str) -> Any:
    made = _Chat(name, model_name=name, api_base=case.base_url, supports_schema=True, supports_tools=True)
    made.key = "any"
    if not case.own:
        client = case.client()
        made.get_client = lambda *args, **options: client
    return made


def _prompt(case: Case, name: str, **options: Any) -> Any:
    return _model(case, name).prompt(PROMPT, temperature=0, max_tokens=64, **options)


def whole(case: Case) -> Any:
    return _prompt(case, case.model, stream=False).text()


def streamed(case: Case) -> Any:
    return list(_prompt(case, case.model))


def tool(case: Case) -> Any:
    call = _prompt(case, case.tool_model, tools=[llm.Tool.function(weather)], stream=False).tool_calls()[0]
    return call.name, call.arguments


def structured(case: Case) -> Any:
    return City.model_validate_json(_prompt(case, case.model, schema=City, stream=False).text()).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
