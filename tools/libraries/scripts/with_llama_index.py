"""llama-index: ``OpenAILike`` with ``openai_client``, or by its base URL."""

from typing import Any

from checks import PROMPT, Case, City, run, weather
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

_MESSAGES = [ChatMessage(role="user", content=PROMPT)]


def _model(case: Case, name: str) -> OpenAILike:
    given: dict[str, Any] = {"api_base": case.base_url} if case.own else {"openai_client": case.client()}
    return OpenAILike(
        model=name,
        api_key="any",
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        temperature=0,
        max_tokens=64,
        max_retries=0,
        **given,
    )


def whole(case: Case) -> Any:
    return _model(case, case.model).chat(_MESSAGES).message.content


def streamed(case: Case) -> Any:
    return [piece.delta for piece in _model(case, case.model).stream_chat(_MESSAGES)]


def tool(case: Case) -> Any:
    model, tools = _model(case, case.tool_model), [FunctionTool.from_defaults(weather)]
    made = model.chat_with_tools(tools, user_msg=PROMPT, tool_required=True)
    call = model.get_tool_calls_from_response(made)[0]
    return call.tool_name, call.tool_kwargs


def structured(case: Case) -> Any:
    made = _model(case, case.model).as_structured_llm(City).chat(_MESSAGES)
    return City.model_validate_json(made.message.content or "").city


run(whole=whole, streamed=streamed, tool=tool, structured=structured)
