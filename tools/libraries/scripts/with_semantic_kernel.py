"""semantic-kernel: ``OpenAIChatCompletion`` with ``async_client``."""

from enum import StrEnum
from typing import Annotated, Any

from checks import PROMPT, Case, City, run
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory, FunctionCallContent
from semantic_kernel.functions import kernel_function


class _City(StrEnum):
    ULM = "Ulm"
    BONN = "Bonn"


class _Plugin:
    @kernel_function(name="weather", description="Return the weather of a city.")
    def weather(self, city: Annotated[_City, "a city"]) -> str:
        return f"sunny in {city.value}"


def _service(case: Case, name: str) -> OpenAIChatCompletion:
    return OpenAIChatCompletion(ai_model_id=name, async_client=case.async_client())


def _history() -> ChatHistory:
    history = ChatHistory()
    history.add_user_message(PROMPT)
    return history


def _settings(**options: Any) -> OpenAIChatPromptExecutionSettings:
    return OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=64, **options)


async def whole(case: Case) -> Any:
    return str(await _service(case, case.model).get_chat_message_content(_history(), _settings()))


async def streamed(case: Case) -> Any:
    stream = _service(case, case.model).get_streaming_chat_message_content(_history(), _settings())
    return [str(piece) async for piece in stream]


async def tool(case: Case) -> Any:
    kernel = Kernel()
    kernel.add_plugin(_Plugin(), plugin_name="sky")
    settings = _settings(function_choice_behavior=FunctionChoiceBehavior.Required(auto_invoke=False))
    made = await _service(case, case.tool_model).get_chat_message_content(_history(), settings, kernel=kernel)
    call = next(item for item in made.items if isinstance(item, FunctionCallContent))
    return call.function_name, call.parse_arguments() or {}


async def structured(case: Case) -> Any:
    settings = _settings(response_format=City)
    made = await _service(case, case.model).get_chat_message_content(_history(), settings)
    return City.model_validate_json(str(made)).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
