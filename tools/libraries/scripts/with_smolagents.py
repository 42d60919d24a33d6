"""smolagents: ``OpenAIModel`` by its base URL, or with its attribute ``client`` set."""

from typing import Any

from checks import FORM, PROMPT, Case, City, run
from smolagents import ChatMessage, OpenAIModel, Tool

_MESSAGES = [ChatMessage(role="user", content=[{"type": "text", "text": PROMPT}])]


class _Weather(Tool):
    name = "weather"
    description = "Returns the weather of a city."
    inputs = {"city": {"type": "string", "description": "Ulm or Bonn", "enum": ["Ulm", "Bonn"]}}
    output_type = "string"

    def forward(self, city: str) -> str:
        return f"sunny in {city}"


def _model(case: Case, name: str) -> OpenAIModel:
    made = OpenAIModel(
        model_id=name,
        api_base=case.base_url,
        api_key="any",
        temperature=0,
        max_tokens=512,
        flatten_messages_as_text=True,
    )
    if not case.own:
        made.client = case.client()
    return made


def whole(case: Case) -> Any:
    return _model(case, case.model).generate(_MESSAGES).content


def streamed(case: Case) -> Any:
    return [piece.content for piece in _model(case, case.model).generate_stream(_MESSAGES)]


def tool(case: Case) -> Any:
    made = _model(case, case.tool_model).generate(_MESSAGES, tools_to_call_from=[_Weather()])
    call = (made.tool_calls or [])[0]
    return call.function.name, call.function.arguments


def structured(case: Case) -> Any:
    made = _model(case, case.model).generate(_MESSAGES, response_format=FORM)
    return City.model_validate_json(str(made.content)).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
