"""llm: its ``Chat`` model by its base URL, or with its method ``get_client`` replaced."""

from typing import Any

import llm
from checks import PROMPT, Case, City, run, weather
from llm.default_plugins.openai_models import Chat


def _model(case: Case, name: str) -> Any:
    made = Chat(name, model_name=name, api_base=case.base_url, supports_schema=True, supports_tools=True)
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
