"""guidance: ``models.OpenAI`` by its base URL, or its client wrapper with a client given."""

from typing import Any

from checks import PROMPT, TOOL, Case, City, run
from guidance import Tool, assistant, gen, guidance, json, user
from guidance import models as guidance_models


def _model(case: Case, name: str) -> Any:
    made = guidance_models.OpenAI(name, api_key="any", base_url=case.base_url, echo=False)
    if not case.own:
        made._interpreter.client.client = case.client()
    return made


def whole(case: Case) -> Any:
    made = _model(case, case.model)
    with user():
        made += PROMPT
    with assistant():
        made += gen("answer", max_tokens=64, temperature=0)
    return made["answer"]


@guidance
def _ask(model: Any) -> Any:
    with user():
        model += PROMPT
    with assistant():
        model += gen("answer", max_tokens=64, temperature=0)
    return model


def streamed(case: Case) -> Any:
    lengths = set()
    for state in _model(case, case.model).stream() + _ask():
        made = state
        lengths.add(len(str(state)))
    assert len(lengths) > 2, "the model's states are those of a whole answer"
    return [made["answer"][:1], made["answer"][1:]]


def tool(case: Case) -> Any:
    made, called = _model(case, case.tool_model), []

    def weather(city: str) -> str:
        called.append(city)
        return f"sunny in {city}"

    function = TOOL["function"]
    offered = Tool.from_callable(
        weather, name="weather", description=function["description"], parameters=function["parameters"]
    )
    with user():
        made += PROMPT
    with assistant():
        made += gen(tools=[offered], tool_choice="required")
    return "weather", {"city": called[0]}


def structured(case: Case) -> Any:
    made = _model(case, case.model)
    with user():
        made += PROMPT
    with assistant():
        made += json("city", schema=City, temperature=0, max_tokens=64)
    return City.model_validate_json(made["city"]).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
