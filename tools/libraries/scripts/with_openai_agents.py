"""openai-agents: ``OpenAIResponsesModel`` or ``OpenAIChatCompletionsModel`` with a client."""

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from agents.agent import StopAtTools
from checks import PROMPT, Case, City, hosted, run, weather


def _agent(case: Case, name: str, **options: Any) -> Agent:
    # An agent refuses a response of the Responses API that ends at its limit, as the bundled model's does.
    kind = OpenAIResponsesModel if hosted(case) else OpenAIChatCompletionsModel
    model = kind(name, case.async_client())
    settings = ModelSettings(temperature=0, max_tokens=64)
    if "tools" in options:
        settings.tool_choice, settings.parallel_tool_calls = "required", False
    return Agent(name="checked", model=model, model_settings=settings, **options)


async def whole(case: Case) -> Any:
    return (await Runner.run(_agent(case, case.model), PROMPT)).final_output


async def streamed(case: Case) -> Any:
    result = Runner.run_streamed(_agent(case, case.model), PROMPT)
    return [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]


async def tool(case: Case) -> Any:
    agent = _agent(
        case,
        case.tool_model,
        tools=[function_tool(weather)],
        tool_use_behavior=StopAtTools(stop_at_tool_names=["weather"]),
    )
    result = await Runner.run(agent, PROMPT)
    call: Any = next(item for item in result.new_items if item.type == "tool_call_item").raw_item
    return call.name, call.arguments


async def structured(case: Case) -> Any:
    return (await Runner.run(_agent(case, case.model, output_type=City), PROMPT)).final_output.city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
