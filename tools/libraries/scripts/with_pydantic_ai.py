"""pydantic-ai: ``OpenAIChatModel`` over ``OpenAIProvider(openai_client=…)``, or by its base URL."""

from typing import Any

from checks import PROMPT, Case, City, run, weather
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import NativeOutput
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import Tool


def _model(case: Case, name: str) -> OpenAIChatModel:
    provider = (
        OpenAIProvider(base_url=case.base_url, api_key="any")
        if case.own
        else OpenAIProvider(openai_client=case.async_client())
    )
    return OpenAIChatModel(name, provider=provider, settings={"temperature": 0, "max_tokens": 64})


async def whole(case: Case) -> Any:
    return (await Agent(_model(case, case.model)).run(PROMPT)).output


async def streamed(case: Case) -> Any:
    async with Agent(_model(case, case.model)).run_stream(PROMPT) as result:
        return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]


async def tool(case: Case) -> Any:
    agent = Agent(
        _model(case, case.tool_model),
        tools=[Tool(weather, requires_approval=True)],
        output_type=[City, DeferredToolRequests],
    )
    output: Any = (await agent.run(PROMPT)).output
    if isinstance(output, City):  # the model may call the output's tool at once
        return "weather", {"city": output.city}
    call = output.approvals[0]
    return call.tool_name, call.args_as_dict()


async def structured(case: Case) -> Any:
    return (await Agent(_model(case, case.model), output_type=NativeOutput(City)).run(PROMPT)).output.city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
