"""haystack: ``OpenAIChatGenerator`` by its base URL, or with its attribute ``client`` set."""

from typing import Any

from checks import PROMPT, TOOL, Case, City, run, weather
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

_MESSAGES = [ChatMessage.from_user(PROMPT)]


def _generator(case: Case, name: str, **options: Any) -> OpenAIChatGenerator:
    settings = {"temperature": 0, "max_tokens": 64, **options.pop("generation_kwargs", {})}
    made = OpenAIChatGenerator(
        model=name,
        api_key=Secret.from_token("any"),
        api_base_url=case.base_url,
        generation_kwargs=settings,
        **options,
    )
    made.warm_up()
    if not case.own:
        made.client = case.client()
    return made


def whole(case: Case) -> Any:
    return _generator(case, case.model).run(_MESSAGES)["replies"][0].text


def streamed(case: Case) -> Any:
    pieces: list[str] = []
    made = _generator(case, case.model, streaming_callback=lambda chunk: pieces.append(chunk.content))
    answer = made.run(_MESSAGES)["replies"][0].text
    assert "".join(pieces) == answer
    return pieces


def tool(case: Case) -> Any:
    function = TOOL["function"]
    made = Tool(
        name=function["name"],
        description=function["description"],
        parameters=function["parameters"],
        function=weather,
    )
    generator = _generator(case, case.tool_model, tools=[made], generation_kwargs={"tool_choice": "required"})
    call = generator.run(_MESSAGES)["replies"][0].tool_calls[0]
    return call.tool_name, call.arguments


def structured(case: Case) -> Any:
    made = _generator(case, case.model, generation_kwargs={"response_format": City})
    return City.model_validate_json(made.run(_MESSAGES)["replies"][0].text).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
