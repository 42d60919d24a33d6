"""magentic: ``OpenaiChatModel`` by its base URL, or with its client set."""

from typing import Any

from checks import PROMPT, Case, City, run, weather
from magentic import FunctionCall, OpenaiChatModel, StreamedStr, UserMessage

_MESSAGES = [UserMessage(PROMPT)]


def _model(case: Case, name: str) -> OpenaiChatModel:
    made = OpenaiChatModel(name, base_url=case.base_url, api_key="any", temperature=0, max_tokens=64)
    if not case.own:
        made._client = case.client()
    return made


def whole(case: Case) -> Any:
    return _model(case, case.model).complete(_MESSAGES, output_types=[str]).content


def streamed(case: Case) -> Any:
    return list(_model(case, case.model).complete(_MESSAGES, output_types=[StreamedStr]).content)


def tool(case: Case) -> Any:
    made = _model(case, case.tool_model).complete(_MESSAGES, functions=[weather], output_types=[FunctionCall])
    return made.content.function.__name__, made.content.arguments


def structured(case: Case) -> Any:
    # The library makes structured output of a tool call, so the model is the one with tools.
    return _model(case, case.tool_model).complete(_MESSAGES, output_types=[City]).content.city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
