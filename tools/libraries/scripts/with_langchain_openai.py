"""langchain-openai: ``ChatOpenAI`` with ``root_client`` and ``client`` given, or by its base URL."""

from typing import Any

from checks import PROMPT, Case, City, run, weather
from langchain_openai import ChatOpenAI


def _model(case: Case, name: str) -> Any:
    options: dict[str, Any] = {"model": name, "temperature": 0, "max_tokens": 64, "api_key": "any"}
    if not case.own:
        client, aclient = case.client(), case.async_client()
        options |= {
            "root_client": client,
            "root_async_client": aclient,
            "client": client.chat.completions,
            "async_client": aclient.chat.completions,
        }
    return ChatOpenAI(**options)


def whole(case: Case) -> Any:
    return _model(case, case.model).invoke(PROMPT).text


def streamed(case: Case) -> Any:
    return [chunk.text for chunk in _model(case, case.model).stream(PROMPT)]


def tool(case: Case) -> Any:
    call = _model(case, case.tool_model).bind_tools([weather], tool_choice="any").invoke(PROMPT).tool_calls[0]
    return call["name"], call["args"]


def structured(case: Case) -> Any:
    return _model(case, case.model).with_structured_output(City).invoke(PROMPT).city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
