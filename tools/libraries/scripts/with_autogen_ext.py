"""autogen-ext: ``OpenAIChatCompletionClient`` by its base URL, its base class with a client given."""

from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import ModelInfo, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient, OpenAIChatCompletionClient
from checks import PROMPT, Case, City, run, weather

_MESSAGES = [UserMessage(content=PROMPT, source="user")]
_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,
)


def _model(case: Case, name: str) -> Any:
    arguments = {"model": name, "temperature": 0, "max_tokens": 64}
    if case.own:
        return OpenAIChatCompletionClient(
            base_url=case.base_url, api_key="any", model_info=_INFO, **arguments
        )
    return BaseOpenAIChatCompletionClient(case.async_client(), create_args=arguments, model_info=_INFO)


async def whole(case: Case) -> Any:
    return (await _model(case, case.model).create(_MESSAGES)).content


async def streamed(case: Case) -> Any:
    stream = _model(case, case.model).create_stream(_MESSAGES, cancellation_token=CancellationToken())
    return [piece async for piece in stream if isinstance(piece, str)]


async def tool(case: Case) -> Any:
    tools = [FunctionTool(weather, description="Return the weather of a city.")]
    made = await _model(case, case.tool_model).create(_MESSAGES, tools=tools, tool_choice="required")
    return made.content[0].name, made.content[0].arguments


async def structured(case: Case) -> Any:
    made = await _model(case, case.model).create(_MESSAGES, json_output=City)
    return City.model_validate_json(made.content).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
